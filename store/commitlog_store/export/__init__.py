"""Export of messages into Parquet, JSON lines and CSV."""
