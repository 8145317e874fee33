"""``python -m commitlog``: the same as the command ``commitlog``."""

from __future__ import annotations

from commitlog.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
