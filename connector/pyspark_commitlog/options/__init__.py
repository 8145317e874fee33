"""Options of the source and the sink: parsing, defaults and checks."""
