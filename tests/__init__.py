"""Tests, laid out like the packages they test."""

__all__: list[str] = []
