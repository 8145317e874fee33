"""The threads of the store: the only room that knows about threads, waits and interrupts."""

__all__: list[str] = []
