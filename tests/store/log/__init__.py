"""The CommitLog: walks past damage."""
