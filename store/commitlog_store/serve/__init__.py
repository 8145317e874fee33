"""``commitlog serve``: one process that shows stores to others over the network."""
