"""RocketMQ's message store in Python: the same files and the same rules. Works without Spark.

``StoreReader`` reads stores, RocketMQ's and its own, live, from a copy or from a backup. ``MessageStore`` owns one: it
appends, flushes, dispatches, and recovers after a crash.
"""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

__version__ = "0.1.0"

# The module of each public name. Type checkers read the same list: the stub beside this file. A name is imported when
# it is first used: the writing half needs POSIX record locks, which programs that only read do without; and the command
# line has to be ready for Ctrl-C before the long imports begin.
_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_MODULES = {name: module for module, name in re.findall(r"^from (\S+\.\S+) import (\w+) as", _STUB, re.MULTILINE)}

__all__ = list(_MODULES)
__all__ += ["__version__"]


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def __getattr__(name: str) -> object:
    if name in _MODULES:
        found: object = getattr(import_module(_MODULES[name]), name)
        globals()[name] = found  # the next use does not come here: it would take 2 µs
        return found
    if name == "errors":  # `commitlog_store.errors.DiskFull` after `import commitlog_store`
        return import_module("commitlog_store.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
