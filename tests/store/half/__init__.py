"""Half messages."""

__all__: list[str] = []
