"""Tests of the room ``salvage``."""
