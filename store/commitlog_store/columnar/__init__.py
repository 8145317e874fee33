"""Many records at once, as functions over numpy and Arrow arrays."""
