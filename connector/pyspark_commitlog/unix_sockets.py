"""PYSPARK_UDS_MODE: lets Spark speak with its Python workers through Unix domain sockets in place of TCP.

Over TCP each task of a Python source or sink waits some 40 ms for a delayed acknowledgement, see
docs/decisions/0016-small-batches.md. The variable is the default of Spark's setting
``spark.python.unix.domain.socket.enabled``. The JVM reads it when it starts, and PySpark when it makes a
``SparkContext``: so it must be set before the first ``SparkSession``, and must not be set later.

Spark makes the sockets in ``java.io.tmpdir`` and fails where it cannot: so they are tried first.

Source: Spark ``core/.../internal/config/Python.scala``, PySpark ``core/context.py``
"""

from __future__ import annotations

import contextlib
import os
import re
import sys

from pyspark_commitlog.worker_python import is_launched_by_spark

_CHOSEN_BY_USER = "PYSPARK_UDS_MODE"
# Variables that set another temporary directory of a JVM. A setting of Spark is not known yet.
_JAVA_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
_JAVA_DIRECTORY = re.compile(r"-Djava\.io\.tmpdir=([^\s'\"]+)")
# On Linux Java asks no variable for it.
_DIRECTORY_OF_JAVA = "/tmp"
# The shortest limit of a socket's path among the systems, which Spark keeps to.
_LONGEST_PATH = 103


def use_unix_sockets() -> None:
    """Set PYSPARK_UDS_MODE for the JVM that this process starts, unless the user did or there can be no such sockets.

    A setting of the session counts more than the variable.
    """
    if _CHOSEN_BY_USER in os.environ or is_launched_by_spark() or _jvm_runs():
        return
    # Whatever goes wrong, Spark works without.
    with contextlib.suppress(Exception):
        if all(_takes_sockets(directory) for directory in _directories()):
            os.environ[_CHOSEN_BY_USER] = "true"


def _jvm_runs() -> bool:
    context_module = sys.modules.get("pyspark.core.context")
    return getattr(getattr(context_module, "SparkContext", None), "_gateway", None) is not None


def _directories() -> set[str]:
    """Where Java makes temporary files, as far as that is known."""
    import tempfile

    named = {name for options in _JAVA_OPTIONS for name in _JAVA_DIRECTORY.findall(os.environ.get(options, ""))}
    if not named and sys.platform == "linux":
        named = {_DIRECTORY_OF_JAVA}
    return named | {tempfile.gettempdir()}


def _takes_sockets(directory: str) -> bool:
    """Try it with a name as long as those of Spark."""
    import socket
    import uuid

    path = os.path.join(directory, f".{uuid.uuid4()}.sock")
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(path)) > _LONGEST_PATH:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            tried.bind(path)
    except OSError:
        return False
    os.unlink(path)
    return True
