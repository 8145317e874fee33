"""Figures of the past: the ring of records in a store's directory, its writer, and series for charts."""
