"""Pages about a store, made at the server: overview, topics, messages, consumer groups."""
