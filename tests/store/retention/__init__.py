"""Tests of retention."""

__all__: list[str] = []
