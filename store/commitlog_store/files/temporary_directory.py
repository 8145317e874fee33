"""Directories for files that one run needs, outside of any store: below ``TMPDIR``, or the system's directory."""

from __future__ import annotations

import tempfile


def temporary_root() -> str:
    return tempfile.gettempdir()


def make_temporary_directory(parent: str, prefix: str) -> str:
    """Make a directory with a name of its own in ``parent``. The caller removes it."""
    return tempfile.mkdtemp(prefix=prefix, dir=parent)
