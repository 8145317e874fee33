"""Half messages."""
