"""CloudClient: requests to S3, GCS, Azure and directories of a local disk, through ``obstore``."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from commitlog_store.errors import InvalidValue
from commitlog_store.object_storage.clients import LISTED_AT_ONCE, PART_SIZE, PARTS_AT_ONCE, Failure, Listed

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_MS = 1000
# How a refusal of access reads where ``obstore`` has no error of its own for it: of listings and uploads in parts.
_NO_ACCESS = re.compile(r"\bstatus code: 40[13]\b")
# An answer of S3 that says why a request failed, perhaps cut; it may repeat the session token.
_XML = re.compile(r"(?:<\?xml[^>]*>\s*)?<Error>.*?(?:</Error>|$)", re.DOTALL)
# How long a request took: another time with each repetition of the same error.
_TOOK = re.compile(r" in \d+(?:\.\d+)?(?:ns|µs|ms|s)\b")
_SAYS = re.compile(r"<(?:Code|Message)>([^<]*)</")


class CloudClient:
    """A ``StorageClient``."""

    credentials = (
        "Credentials come from the environment (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, "
        "AZURE_STORAGE_ACCOUNT_KEY, ...), a profile, or the machine's role."
    )

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._obstore = load_obstore()

    def get(self, name: str) -> bytes:
        return bytes(self._obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, stop: int) -> memoryview:
        return memoryview(self._obstore.get_range(self._store, name, start=start, end=stop))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
        return [bytes(one) for one in self._obstore.get_ranges(self._store, name, starts=starts, ends=stops)]

    def head(self, name: str) -> Listed:
        return _listed(self._obstore.head(self._store, name))

    def list(self, folder: str) -> Iterator[list[Listed]]:
        for page in self._obstore.list(self._store, folder or None, chunk_size=LISTED_AT_ONCE):
            yield list(map(_listed, page))

    def put(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        if size <= PART_SIZE:
            self._obstore.put(self._store, name, b"".join(parts), use_multipart=False)
        else:
            # The parts are of any length; those of the upload are of PART_SIZE.
            self._obstore.put(
                *(self._store, name, iter(parts)),
                use_multipart=True,
                chunk_size=PART_SIZE,
                max_concurrency=PARTS_AT_ONCE,
            )

    def put_new(self, name: str, data: bytes) -> bool:
        try:
            self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        self._obstore.delete(self._store, list(names))

    def kind_of(self, error: Exception) -> Failure | None:
        known = self._obstore.exceptions
        if isinstance(error, FileNotFoundError | known.NotFoundError):
            return Failure.MISSING
        denied = PermissionError | known.PermissionDeniedError | known.UnauthenticatedError
        if isinstance(error, denied) or (isinstance(error, known.BaseError) and _NO_ACCESS.search(said(error))):
            return Failure.ACCESS
        return Failure.OTHER if isinstance(error, known.BaseError | OSError) else None

    def said(self, error: Exception) -> str:
        return said(error)


@functools.cache
def load_obstore() -> ModuleType:
    """The package obstore. ``InvalidValue`` without it."""
    try:
        importlib.import_module("obstore.store")
        importlib.import_module("obstore.exceptions")
        return importlib.import_module("obstore")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "obstore":
            raise
        raise InvalidValue(
            "Archives in object storage need the package obstore: pip install 'pyspark-commitlog[archive]'."
        ) from None


def said(error: Exception) -> str:
    """The sentence of an error of obstore: without its own debugging, and without what may be a signature or token."""
    text = _XML.sub(lambda answer: ": ".join(_SAYS.findall(answer[0])), str(error).partition("\n\nDebug source")[0])
    text = _TOOK.sub("", text).strip().replace("\n", " ")
    words = [word.partition("?")[0] + "?..." if "://" in word and "?" in word else word for word in text.split(" ")]
    return " ".join(words).rstrip(".")


def _listed(meta: Mapping[str, Any]) -> Listed:
    return Listed(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * _MS))
