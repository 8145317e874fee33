"""The source: planning, tasks, and whole queries through a real Spark."""

__all__: list[str] = []
