"""Tests of the room ``export``."""
