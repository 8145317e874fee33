"""Archives: a store's past in object storage."""
