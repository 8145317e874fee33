"""Crashes at every point, failing calls, damaged ends: what the writing store makes of them."""

__all__: list[str] = []
