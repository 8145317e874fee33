"""Options of the source and the sink: accepted values, and the errors for all others."""
