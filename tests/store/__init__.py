"""Tests of the store, one folder per room."""
