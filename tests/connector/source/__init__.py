"""The source: planning, tasks, and whole queries through a real Spark."""
