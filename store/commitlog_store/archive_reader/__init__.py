"""Archives in object storage as stores that are read."""
