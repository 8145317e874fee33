"""Delayed messages and their delivery."""
