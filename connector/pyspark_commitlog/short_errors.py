"""Short errors: Spark shows an expected error as its sentence alone, without the Python traceback before it.

Spark puts the whole report of a Python worker into its own error: first the traceback, and last the sentence that says
what is wrong and what to do. A user has no use for the places in this package where the error went through. So the
traceback is left out of the errors of this package and of the store (``CommitLogError``). All others keep theirs.

PySpark's workers leave it out where the environment variable SPARK_HIDE_TRACEBACK is set when they report an error,
and end after that. So it is set in a worker when such an error leaves the source, for the rest of that worker's life.
Where it is set already, it stays as it is: empty, it brings all tracebacks back.

A lack of file descriptors is an expected error too. The store names it (``TooManyOpenFiles``). Importing a module on
its first use raises a bare ``OSError``, which is named here.

Source: PySpark ``util.py`` (``handle_worker_exception``) and its callers.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction
from typing import Any, TypeVar

_Source = TypeVar("_Source", bound=type)

_HIDE = "SPARK_HIDE_TRACEBACK"
# Set by Spark in each of its Python workers, those that plan and commit among them, and in no program of a user. The
# others are those of PySpark 4.0 and 4.1, which do not set the first.
_RUNTIME, _WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"
_WORKER_BEFORE_4_2 = tuple(f"PYTHON_WORKER_FACTORY_{name}" for name in ("SECRET", "SOCK_DIR", "SOCK_PATH"))


def with_short_errors(kind: _Source) -> _Source:
    """Class decorator for what Spark calls: a source, its readers and writers. It covers the methods of the class."""
    for name, method in list(vars(kind).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _with_short_errors(method))
    return kind


def _with_short_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _short_errors():
            result = method(*args, **kwargs)
        return _rest(result) if isinstance(result, Iterator) else result

    return call


def _rest(items: Iterator[Any]) -> Iterator[Any]:
    """``read`` gives its rows later, so its errors too."""
    with _short_errors():
        yield from items


@contextmanager
def _short_errors() -> Iterator[None]:
    # Here, since Spark's discovery of sources imports this module; and before any file of a store takes a descriptor.
    from commitlog_store.errors import CommitLogError

    with contextlib.suppress(ImportError):  # only Unix has it
        import resource  # noqa: F401
    try:
        yield
    except Exception as error:
        named = _named(error) if isinstance(error, OSError) else None
        if isinstance(named or error, CommitLogError) and _is_worker():
            os.environ.setdefault(_HIDE, "1")
        if named is not None:
            raise named from error
        raise


def _is_worker() -> bool:
    if os.environ.get(_RUNTIME) == _WORKER:
        return True
    return any(os.environ.get(name) for name in _WORKER_BEFORE_4_2)


def _named(error: OSError) -> Exception | None:
    """The error by name if it is the lack of a descriptor; None for any other."""
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    import resource

    from commitlog_store.errors import TooManyOpenFiles

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if error.errno == errno.EMFILE else None
    return TooManyOpenFiles(path=str(error.filename or "a file"), cause=error, limit=limit)
