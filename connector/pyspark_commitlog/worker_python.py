"""PYSPARK_PYTHON: makes Spark's Python workers run the driver's interpreter.

Spark starts its workers, and the process in which it looks for Python data sources, as ``python3`` from PATH unless
the environment variable PYSPARK_PYTHON says otherwise. A program started as ``.venv/bin/python program.py`` without
activating the environment therefore gets workers that have none of its packages: no pyarrow, and no source called
``commitlog``. The JVM reads the variable when it starts, so it must be set before the first ``SparkSession``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings

# PYSPARK_DRIVER_PYTHON is ignored: workers do not read it.
_CHOSEN_BY_USER = "PYSPARK_PYTHON"
# Set when Spark itself launched this process (spark-submit, or a worker): the choice of Python was made before.
_LAUNCHED_BY_SPARK = (
    "PYSPARK_GATEWAY_PORT",
    "PYTHON_WORKER_FACTORY_SECRET",
    "PYTHON_WORKER_FACTORY_SOCK_DIR",
    "PYTHON_WORKER_FACTORY_SOCK_PATH",
)


def is_launched_by_spark() -> bool:
    """Whether a JVM has started this process: its settings are not for this process to make."""
    return any(os.environ.get(name) for name in _LAUNCHED_BY_SPARK)


def use_this_python_in_workers() -> None:
    """Set PYSPARK_PYTHON to this interpreter if Spark would run another one; warn if it is too late for that."""
    if os.environ.get(_CHOSEN_BY_USER) or is_launched_by_spark() or not sys.executable:
        return
    running = _python_of_running_spark()
    if running is not None:
        _warn_if_it_lacks_this_package(running)
    elif not _is_this_python("python3") and os.path.exists(sys.executable):
        os.environ[_CHOSEN_BY_USER] = sys.executable


def _is_this_python(command: str) -> bool:
    """Whether ``command`` starts this very interpreter.

    Links are not followed: the ``python`` of a virtual environment is a link to the interpreter it was made from,
    and which packages are found depends on the link.
    """
    found = shutil.which(command)
    return found is not None and os.path.abspath(found) in {
        os.path.abspath(sys.executable),
        os.path.join(sys.prefix, "bin", "python3"),
    }


def _python_of_running_spark() -> str | None:
    """The command with which the active ``SparkContext`` starts its workers; None without a context."""
    context_module = sys.modules.get("pyspark.core.context")
    context = getattr(getattr(context_module, "SparkContext", None), "_active_spark_context", None)
    command = getattr(context, "pythonExec", None)
    return command if isinstance(command, str) else None


def _warn_if_it_lacks_this_package(command: str) -> None:
    """Another interpreter may have the package too, so it is asked before the warning."""
    if _is_this_python(command):
        return
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark_commitlog') is None)"
    try:
        has_package = (
            subprocess.run([command, "-c", look], check=False, capture_output=True, timeout=20).returncode == 0
        )
    except (OSError, subprocess.SubprocessError):
        has_package = False
    if not has_package:
        warnings.warn(
            f"Spark was started before pyspark_commitlog was imported, and runs its Python workers as {command!r}, "
            f"which does not have this package. Import pyspark_commitlog before making the SparkSession, or set "
            f"PYSPARK_PYTHON={sys.executable}.",
            stacklevel=3,
        )
