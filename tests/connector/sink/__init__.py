"""The sink: columns, staging, commits, and whole queries through a real Spark."""
