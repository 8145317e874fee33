"""The JSON files in ``config/``."""

__all__: list[str] = []
