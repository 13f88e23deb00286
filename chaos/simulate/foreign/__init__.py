"""The simulator of the models of foreign keyspaces: the same producers, workers, network and mishaps as for Lanes. What differs
is how the raw keys are read, which a format of each model does, and what must hold of them.

A job is known here by the text in its payload, which is of its own enqueue alone, because some formats assign ids.
"""
