"""How the judge scales: histories of millions of rows grown from a recorded run, with violations planted, and what judging
them costs."""
