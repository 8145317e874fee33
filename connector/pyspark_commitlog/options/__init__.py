"""What the user asked for."""

__all__: list[str] = []
