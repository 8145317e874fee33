"""What runs beside the puts: flushing, dispatch, allocation. Each service does one step when it is told to."""

__all__: list[str] = []
