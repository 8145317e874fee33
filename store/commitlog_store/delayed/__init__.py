"""Delayed messages: their delivery, the position of each delay level, and the messages that wait."""
