"""Object storage: addresses and credentials, ranges of objects, a cache of their pages on the local disk."""
