"""Programs that use Spark, run one after another in one process, so that one JVM starts for all of them.

Each is the main module there and gets a Spark of its own, which is stopped when it ends. What differs from a process
of its own: the JVM and the modules are loaded. ``python -m tests.support.spark_programs`` is that process: it reads a
line of JSON for each program, and answers with one.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, TextIO

from tests.support.local_spark import make_java_available
from tests.support.programs import child_environment
from tests.support.readable import readable

LIMIT_S = 240.0


class SparkPrograms:
    """The process, which starts with its first program; a program that does not end takes it along."""

    def __init__(self, scratch: Path, **environment: str) -> None:
        self._scratch = scratch
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def run(self, program: Path | str, *arguments: str | Path, directory: Path) -> subprocess.CompletedProcess[str]:
        """Run a file, or a module by its name, with ``directory`` for its files; its output is kept."""
        log = self._scratch / "log"
        process = self._process or self._start(log)
        assert process.stdin is not None
        assert process.stdout is not None
        begin = log.stat().st_size
        given = [str(argument) for argument in arguments]
        file, module = (str(program), None) if isinstance(program, Path) else (None, program)
        request = {"file": file, "module": module, "arguments": given, "directory": str(directory)}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline() if readable(process.stdout, LIMIT_S) else ""
        said = log.read_bytes()[begin:].decode(errors="replace")
        if not answer:
            self.close()
            raise AssertionError(f"{program} ended its process, or not at all: {said}")
        ended = json.loads(answer)
        return subprocess.CompletedProcess([str(program), *given], ended["code"], ended["printed"], said)

    def _start(self, log: Path) -> subprocess.Popen[str]:
        make_java_available()
        # PYSPARK_PYTHON is left out: programs must do without it.
        environment = {key: value for key, value in child_environment().items() if not key.startswith("PYSPARK_")}
        environment |= self._environment
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                cwd=self._scratch,
                env=environment,
                text=True,
            )
        return self._process

    def close(self) -> None:
        """The JVM ends with its process, whose standard input it reads."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def main() -> None:
    """Run what standard input asks for; nothing but answers is written to standard output."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _start_jvm()
    for line in sys.stdin:
        request = json.loads(line)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = _run(request)
            _stop_spark()
        answers.write(json.dumps({"code": code, "printed": printed.getvalue()}) + "\n")
        answers.flush()


def _start_jvm() -> None:
    """What the first Spark is given becomes the default of all that follow, so it is given next to nothing."""
    from pyspark.sql import SparkSession

    import pyspark_commitlog  # noqa: F401  # as every program does: the JVM keeps the environment it starts with

    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate().stop()


def _run(request: dict[str, Any]) -> int:
    """The program's exit code, as the interpreter would give it."""
    os.environ["TMPDIR"] = request["directory"]
    tempfile.tempdir = None
    os.chdir(request["directory"])
    sys.argv = [request["file"] or request["module"], *request["arguments"]]
    before = sys.path.copy()
    try:
        if request["file"]:
            # As an interpreter has it: the program's own directory comes first.
            sys.path.insert(0, str(Path(request["file"]).parent))
            runpy.run_path(request["file"], run_name="__main__")
        else:
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return _code(end.code, sys.stderr)
    except BaseException:  # noqa: BLE001  # whatever a program ends with is its own end alone
        traceback.print_exc()
        return 1
    finally:
        sys.path[:] = before
    return 0


def _code(code: object, stderr: TextIO) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    stderr.write(f"{code}\n")
    return 1


def _stop_spark() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


if __name__ == "__main__":
    main()
