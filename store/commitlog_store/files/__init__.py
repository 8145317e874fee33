"""The only place that touches files."""
