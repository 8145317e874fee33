"""Consumer groups: their positions beside the queues' bounds, and committing positions without opening the store."""
