"""Processes that write to a store and are killed: nothing that was acknowledged to them may be lost."""
