"""The deterministic simulator: the engine's real scripts and real decisions, and everything around them played from one seed.

A private server runs the scripts of `lua/`; `engine.worker.machine.machine.WorkerMachine` decides for every worker and
`engine.redis.exchange.InFlightCall` for every call on its way, exactly as in production. Processes, handlers,
the network between them and the server, and all clocks are played here, in virtual time that starts in 2100. After each step the
invariants are checked: after a delivery on the raw keys, after an event of a process, which cannot change a key, on what the
processes hold.

    python -m chaos simulate --seed 1 --minutes 10
    python -m chaos simulate rules          # each rule of the protocol taken away in turn: the simulator must find it
"""
