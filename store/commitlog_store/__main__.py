"""``python -m commitlog_store``: the same as the command ``commitlog``."""

from __future__ import annotations

from commitlog_store.cli import main

if __name__ == "__main__":
    main()
