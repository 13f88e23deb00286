"""The corruptor: edits a valid history in every way that a broken engine might show, and asks the judge whether it sees each."""
