"""The store compared with its log; nothing is changed."""

__all__: list[str] = []
