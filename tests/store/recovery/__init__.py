"""How a store is opened: the decision, and recovery."""
