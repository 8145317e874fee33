"""Options of the source and the sink: what is accepted, and what is refused with which words."""

__all__: list[str] = []
