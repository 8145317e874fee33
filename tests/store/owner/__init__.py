"""The owner of a store: its puts, their results, and what it leaves in the store."""
