"""Index files: from message keys to physical offsets in the log."""

__all__: list[str] = []
