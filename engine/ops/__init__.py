"""Operations: what a call asks of the server, each declared once: its fields, the script that carries it out,
and how its reply is read. Models turn them into calls, drivers send these."""
