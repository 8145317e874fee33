"""The Spark source: batch and streaming reads."""

__all__: list[str] = []
