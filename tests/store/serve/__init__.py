"""``commitlog serve``, and its readers."""

__all__: list[str] = []
