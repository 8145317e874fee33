"""HdfsClient: requests to HDFS, through ``hdfs-native``: a file is an object (docs/decisions/0057-hdfs.md).

A file gets its name when it is closed: it is written as ``NAME#unfinished-<16 hex digits>`` and renamed. The name node
makes a rename at once for all, and refuses one without ``overwrite`` when the new name exists: that is ``put_new``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from commitlog_store.errors import InvalidValue
from commitlog_store.object_storage.clients import LISTED_AT_ONCE, PART_SIZE, Failure, Listed, unfinished_name

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader

_T = TypeVar("_T")

# Hadoop's own port of a name node, where an address has none and is not a name service.
_PORT = 8020
_MS = 1000
# hdfs-native asks a name node that it cannot connect to so often again, with pauses that double.
_REPETITIONS = 4
# The first pause is such a part of the time for a request: all of them are a quarter of it.
_FIRST_PAUSE = 1 / 60
# How long the file of a write that failed is tried to be deleted, and a process that ends waits for its requests.
_CLEANING_S = 5.0
_ENDING_S = 2.0
# ``RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: ...\n\tat ...")``
_JAVA = re.compile(r'^\w+\("[\w.$]+", "(.*)"\)$', re.DOTALL)
_STACK = re.compile(r"(?:\\n|\n)(?:\\t|\t)at ", re.DOTALL)
_NO_ACCESS = re.compile(
    r"AccessControlException|AuthorizationException|SecretManager\$InvalidToken|SASLError|GSSAPIError|NoSASLMechanism"
)

# The threads whose requests are under way; and when the process began to end, from which on no more are made.
_asking: set[threading.Thread] = set()
_ended: list[float] = []


class HdfsFailure(Exception):
    """A request to HDFS failed. ``cause`` is the error of hdfs-native, or a ``TimeoutError``."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(_said(cause))
        self.cause = cause


class HdfsClient:
    """A ``StorageClient`` of the files below one directory."""

    credentials = (
        "The user is that of HADOOP_USER_NAME or of this process, and with Kerberos that of the ticket (kinit) or of "
        "the keytab in KRB5_CLIENT_KTNAME; settings are those in HADOOP_CONF_DIR."
    )

    def __init__(self, client: Client, directory: str, timeout_s: float) -> None:
        self._client = client
        self._directory = directory
        self._timeout_s = timeout_s

    @classmethod
    def connect(cls, url: str, options: Mapping[str, str], timeout_s: float) -> HdfsClient:
        """The files below ``hdfs://HOST:PORT/DIRECTORY``. Nothing is asked yet. ``InvalidValue``.

        In place of the host, the address may have a name service, or nothing: then ``fs.defaultFS`` decides.
        ``options`` are Hadoop's, and go before those in ``HADOOP_CONF_DIR``.
        """
        hdfs = load_hdfs_native()
        parts = urlsplit(url)
        wrong = [name for name in options if "." not in name]
        if wrong:
            raise InvalidValue(
                f"The settings for {url} are Hadoop's, such as dfs.ha.namenodes.NAME, and the address has the name "
                f"node: {wrong[0]!r} is not one of them."
            )
        pauses = {
            "dfs.client.failover.max.attempts": str(_REPETITIONS),
            "dfs.client.failover.sleep.base.millis": str(int(timeout_s * _MS * _FIRST_PAUSE) + 1),
            "dfs.client.socket-timeout": str(int(timeout_s * _MS) + 1),
        }
        settings = pauses | {name: str(value) for name, value in options.items()}
        node = f"hdfs://{parts.netloc or '/'}"
        try:
            try:
                client = hdfs.Client(node, settings)
            except RuntimeError as error:
                if parts.port is not None or not parts.netloc or "No NameNode hosts" not in str(error):
                    raise
                client = hdfs.Client(f"{node}:{_PORT}", settings)
        except (RuntimeError, OSError, ValueError) as error:
            raise InvalidValue(f"{url} cannot be used: {_said(error)}.") from None
        return cls(client, parts.path.rstrip("/"), timeout_s)

    def get(self, name: str) -> bytes:
        def read() -> bytes:
            file = self._client.read(self._path(name))
            return _range(file, 0, len(file))

        return self._within(read)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._within(lambda: _range(self._client.read(self._path(name)), start, stop))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        def read() -> list[bytes]:
            file = self._client.read(self._path(name))
            return [_range(file, start, stop) for start, stop in ranges]

        return self._within(read)

    def head(self, name: str) -> Listed:
        return self._listed(self._within(lambda: self._client.get_file_info(self._path(name))))

    def list(self, folder: str) -> Iterator[list[Listed]]:
        files = iter(self._client.list_status(self._path(folder), recursive=True))
        try:
            page = self._within(lambda: list(islice(files, LISTED_AT_ONCE)))
        except HdfsFailure as error:
            if isinstance(error.cause, FileNotFoundError):
                return  # a directory that was never made has no objects
            raise
        while page:
            yield [self._listed(one) for one in page if not one.isdir]
            page = self._within(lambda: list(islice(files, LISTED_AT_ONCE)))

    def put(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        self._write(name, [b"".join(parts)] if size <= PART_SIZE else parts, overwrite=True)

    def put_new(self, name: str, data: bytes) -> bool:
        try:
            self._write(name, [data], overwrite=False)
        except HdfsFailure as error:
            # The source of a rename is gone after one whose answer was lost, and which hdfs-native repeats.
            if isinstance(error.cause, FileExistsError | FileNotFoundError):
                return False
            raise
        return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._within(functools.partial(self._client.delete, self._path(name)))

    def kind_of(self, error: Exception) -> Failure | None:
        if not isinstance(error, HdfsFailure):
            return None
        if isinstance(error.cause, FileNotFoundError):
            return Failure.MISSING
        return Failure.ACCESS if _NO_ACCESS.search(str(error.cause)) else Failure.OTHER

    def said(self, error: Exception) -> str:
        return str(error)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}".rstrip("/")

    def _listed(self, status: Any) -> Listed:
        return Listed(status.path.removeprefix(f"{self._directory}/"), status.length, status.modification_time)

    def _write(self, name: str, parts: Iterable[bytes | memoryview], *, overwrite: bool) -> None:
        path = self._path(name)
        unfinished = unfinished_name(path, secrets.token_hex(8))
        try:
            file = self._within(lambda: self._client.create(unfinished))
            for part in parts:
                self._within(functools.partial(file.write, part))
            self._within(file.close)
            self._within(lambda: self._client.rename(unfinished, path, overwrite))
        except BaseException:
            with contextlib.suppress(HdfsFailure):
                self._within(lambda: self._client.delete(unfinished), timeout_s=_CLEANING_S)
            raise

    def _within(self, request: Callable[[], _T], timeout_s: float | None = None) -> _T:
        """The answer to a request. ``HdfsFailure``, also when it does not come within the time.

        hdfs-native waits without end for a name node that has the connection and does not answer, and a call cannot be
        interrupted: so another thread makes it.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((True, request()))
            except BaseException as error:  # noqa: BLE001 - a panic of Rust is not an Exception
                answers.put((False, error))
            finally:
                _asking.discard(thread)

        if _ended:
            raise HdfsFailure(InterruptedError("this process ends"))
        thread = threading.Thread(target=ask, name="HdfsClient", daemon=True)
        _asking.add(thread)
        thread.start()
        try:
            is_answer, found = answers.get(timeout=limit)
        except queue.Empty:
            raise HdfsFailure(TimeoutError(f"no answer within {limit:g} s")) from None
        if not is_answer:
            raise HdfsFailure(found) from None
        answer: _T = found
        return answer


@atexit.register
def _end_requests() -> None:
    """Python aborts a process in which a thread returns from Rust while the interpreter is being taken down."""
    _ended.append(time.monotonic())
    for thread in list(_asking):
        thread.join(max(_ended[0] + _ENDING_S - time.monotonic(), 0))


@functools.cache
def load_hdfs_native() -> ModuleType:
    """The package hdfs-native. ``InvalidValue`` without it."""
    try:
        return importlib.import_module("hdfs_native")
    except ModuleNotFoundError as error:
        if error.name != "hdfs_native":
            raise
        raise InvalidValue("HDFS needs the package hdfs-native: pip install 'pyspark-commitlog[hdfs]'.") from None


def _range(file: FileReader, start: int, stop: int) -> bytes:
    """The bytes that a file has of ``[start, stop)``: asked for others, hdfs-native panics."""
    stop = min(stop, len(file))
    return file.read_range(start, stop - start) if start < stop else b""


def _said(error: BaseException) -> str:
    """The sentence of an error of hdfs-native: without Java's class and stack."""
    text = _STACK.split(str(error))[0]
    found = _JAVA.match(text if text.endswith('")') else f'{text}")')
    return (found[1].replace('\\"', '"') if found else text).strip().rstrip(".") or type(error).__name__
