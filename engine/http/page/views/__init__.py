"""What the templates of the page show, made from what the engine has found: pure functions, no I/O."""
