"""Each program in ``examples/`` is run as a user runs it."""
