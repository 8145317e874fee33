"""Export of messages into Parquet, JSON lines and CSV."""

__all__: list[str] = []
