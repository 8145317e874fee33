"""Power cuts of a real block device: a file system on it loses what its device had not flushed."""
