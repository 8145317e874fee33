"""The CommitLog: its records, its files' owner, the store directory and the checkpoint."""
