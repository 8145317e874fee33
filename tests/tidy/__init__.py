"""Rules of the source tree itself, held by tests."""
