"""The only place that touches files."""

__all__: list[str] = []
