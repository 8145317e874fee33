"""Tests of the store, one folder per room."""

__all__: list[str] = []
