"""``commitlog serve``: one process that shows stores to others over the network."""

__all__: list[str] = []
