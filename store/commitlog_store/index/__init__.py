"""Index files: from message keys to physical offsets in the log."""
