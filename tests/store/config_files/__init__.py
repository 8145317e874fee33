"""Tests of the files in ``config/``."""
