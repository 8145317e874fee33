"""A store that another process serves: its wire format, and the client's readers."""
