"""The CommitLog: walks past damage."""

__all__: list[str] = []
