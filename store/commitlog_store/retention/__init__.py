"""Retention: which of the oldest CommitLog files may go, what holds one, and the report of a cleaning."""
