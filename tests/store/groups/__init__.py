"""Consumer groups of a store."""
