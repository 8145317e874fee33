"""The store beside a plain model of it, through random histories."""

__all__: list[str] = []
