"""Stores of every shape that retention, crashes, copies and long lives leave."""
