"""What ``StoreReader`` delegates to: opening, bounds, ranges of messages, places in queues, look-ups, waits."""
