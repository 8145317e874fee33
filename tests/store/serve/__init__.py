"""``commitlog serve``, and its readers."""
