"""Programs that tests start as processes: forks of one that has imported all they use, hundreds in a run of the tests.

Such a program is there in a tenth of the time that an interpreter takes to start and to import this package. It is a
process as any other: a child of the caller's, with an id, signals, an environment, a directory and streams of its own,
and it ends as an interpreter does. What differs is that modules are imported, so a test of imports, or of how an
interpreter starts, uses ``subprocess``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment

_LONGEST_REQUEST = 1 << 17
# Of the system's prctl.h: children of children that have ended become the caller's.
_PR_SET_CHILD_SUBREAPER = 36
# Variables that an interpreter, or a library of the commands, reads once, when it starts.
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "OPENBLAS_", "OMP_", "ARROW_", "GRPC_")
_READ_BY_TYPER = ("TERMINAL_WIDTH", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "_TYPER", "TYPER_")
# Beside the packages of this project: what its commands import when they are called.
_USED = ("pyarrow.parquet", "uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto")
# What a caller may ask of a process beside its streams, directory and environment.
_SPECIAL = ("executable", "preexec_fn", "pass_fds", "shell", "start_new_session", "uid", "gid", "gids")
# Of Arrow's allocator, which stops it before a fork.
_STOPPED_BY_A_FORK = ("jemalloc_bg_thd\n",)


class _Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` of this Python with ``-m`` or ``-c``, or of a script that is installed beside it."""

    def _execute_child(self, *given: Any) -> None:
        in_a_new_interpreter = super()._execute_child  # type: ignore[misc]
        asked: dict[str, Any] = inspect.signature(in_a_new_interpreter).bind(*given).arguments
        if not _is_quick(asked):
            in_a_new_interpreter(*given)
            return
        pipes = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        request = {
            "command": [*map(str, asked["args"])],
            "directory": os.path.abspath(asked["cwd"] or "."),
            "environment": dict(os.environ if asked["env"] is None else asked["env"]),
        }
        files = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        self.pid = _ready_process().fork(request, files)
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in ends))  # type: ignore[attr-defined]


def _run(
    command: Sequence[str | Path],
    *,
    input: str | bytes | None = None,  # noqa: A002 (as subprocess.run has it)
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` of such a program."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with _Popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


if TYPE_CHECKING:
    Popen, run = subprocess.Popen, subprocess.run
else:
    Popen, run = _Popen, _run


def run_program(*arguments: str | Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """``run_program`` of ``tests.support.programs``, quickly."""
    command = [sys.executable, *arguments]
    return run(command, capture_output=True, text=True, cwd=PROJECT, env=child_environment(), timeout=timeout)


def run_with_own_mounts(module: str, *arguments: str | Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """``python -m MODULE`` with file systems that no other process sees, where ``may_mount``."""
    return run_program("-m", "tests.support.own_mounts", module, *arguments, timeout=timeout)


def _is_quick(asked: dict[str, Any]) -> bool:
    """Whether a fork is what a new interpreter would be, as far as a program sees."""
    first, *words = map(str, asked["args"])
    return (
        sys.platform == "linux"
        and Path(first).parent == Path(sys.executable).parent
        and (first != sys.executable or words[0] in ("-m", "-c"))
        and not any(asked[name] for name in _SPECIAL)
        and asked["process_group"] == asked["umask"] == -1
        and _read_at_start(os.environ if asked["env"] is None else asked["env"]) == _ready_process().read_at_start
    )


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    read = (*_READ_AT_START, *_READ_BY_TYPER)
    return {name: environment[name] for name in environment if name.startswith(read) and name != "PYTHONPATH"}


class _ReadyProcess:
    """The process that forks. It ends with the caller's, whose end of a pair of sockets it reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number, environment = theirs.fileno(), child_environment()
            self.read_at_start = _read_at_start(environment)
            command = [sys.executable, "-m", __name__, str(number)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[number])

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """The process id of a child of this process, with these standard streams."""
        with self._lock, _children_of_ended_children_are_ours():
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            answer = self._socket.recv(32)
        assert answer, f"the process that forks programs has ended with {self._process.poll()}"
        return int(answer)


_ready_process = functools.cache(_ReadyProcess)


@contextmanager
def _children_of_ended_children_are_ours() -> Iterator[None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _wait_for_request(number: int) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request; returns in the forks, with theirs, and None when the caller's process has ended."""
    with socket.socket(fileno=number) as asked:
        while True:
            message, files, _, _ = socket.recv_fds(asked, _LONGEST_REQUEST, 3)
            if not message:
                return None
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of forks beside threads
                child = _fork_for_the_parent()
            if not child:
                return json.loads(message), files
            asked.send(str(child).encode())
            for file in files:
                os.close(file)


def _fork_for_the_parent() -> int:
    """The process id of a fork that is a child of this process's parent; 0 in the fork."""
    reading, writing = os.pipe()
    between = os.fork()
    if between:
        os.close(writing)
        child = int(os.read(reading, 32))
        os.close(reading)
        os.waitpid(between, 0)
        return child
    between = os.getpid()
    child = os.fork()
    if child:
        os.write(writing, str(child).encode())
        os._exit(0)
    os.close(reading)
    os.close(writing)
    while os.getppid() == between:
        time.sleep(0.0001)
    return 0


def _become(request: dict[str, Any], files: list[int], paths: list[str]) -> None:
    """Be the program; ``paths`` are those of the interpreter and of its packages."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    sys.stdin = sys.__stdin__ = _stream(0, "rb", sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "wb", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "wb", sys.stderr)  # type: ignore[misc]
    given = os.environ.get("PYTHONPATH")
    sys.path[:] = [*(given.split(os.pathsep) if given else []), *paths]
    sys.orig_argv = request["command"]
    first, *words = request["command"]
    if first != sys.executable:
        sys.path.insert(0, str(Path(first).parent))
        sys.argv = [first, *words]
        runpy.run_path(first, run_name="__main__")
        return
    kind, program, *arguments = words
    sys.path.insert(0, request["directory"] if kind == "-m" else "")
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), module.__dict__)


def _stream(number: int, mode: str, like: TextIO) -> Any:
    """A standard stream as an interpreter makes it, with the encoding of this one's."""
    assert isinstance(like, io.TextIOWrapper)
    return io.TextIOWrapper(
        open(number, mode, 0 if like.write_through else -1, closefd=False),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=not like.write_through and (number == 2 or os.isatty(number)),
        write_through=like.write_through,
    )


def _import_ahead() -> None:
    package = importlib.import_module("commitlog_store")
    found = [one.name for one in pkgutil.walk_packages(package.__path__, "commitlog_store.", lambda _: None)]
    for name in (*found, *_USED):
        if not name.endswith(".__main__"):
            with suppress(ImportError):  # what an extra of the distribution needs
                importlib.import_module(name)
    threads = {one.read_text() for one in Path("/proc/self/task").glob("[0-9]*/comm")}
    lacking = threads - {Path("/proc/self/comm").read_text(), *_STOPPED_BY_A_FORK}
    assert not lacking, f"a fork would lack threads that imports have started: {lacking}"
    gc.collect()
    gc.freeze()


def main(number: int, paths: list[str]) -> None:
    end = _End()
    atexit.register(end.without_teardown)  # what is registered first is called last
    _import_ahead()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest; this ends with it
    found = _wait_for_request(number)
    if found is not None:
        with end:
            _become(*found, paths)


class _End(AbstractContextManager["_End"]):
    """How a fork ends. It leaves its memory as it is: to free each object would copy the pages that have them."""

    def __init__(self) -> None:
        self._code = 0

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, SystemExit):
            known = isinstance(error.code, int | None)
            self._code = int(error.code or 0) if known else 1
        elif error is not None:
            self._code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1

    def without_teardown(self) -> None:
        """Called by the interpreter, which has waited for threads and called what is to be called at exit."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # which the interpreter reports
        if self._code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(self._code & 255)


if __name__ == "__main__":
    # This directory and PYTHONPATH come first.
    main(int(sys.argv[1]), sys.path[1 + len(os.environ["PYTHONPATH"].split(os.pathsep)) :])
