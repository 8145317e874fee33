"""Services of an open store: puts, commits, flushing, dispatch, statistics. Most do one step at each ``run_once``."""

__all__: list[str] = []
