"""The index files: where the messages with a key lie in the log."""

__all__: list[str] = []
