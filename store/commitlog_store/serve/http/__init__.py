"""HTTP in ``commitlog serve``: the listener, who may ask, the pages of the dashboard."""
