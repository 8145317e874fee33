"""Rules of the source tree itself, held by tests."""

__all__: list[str] = []
