"""What a store's files mean: the CommitLog, its consume queues and its index files."""

__all__: list[str] = []
