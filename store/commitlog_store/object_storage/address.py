"""StorageAddress: ``s3://bucket/prefix`` and its kin, the settings of a client of it, and the client.

Credentials are found as users of each cloud expect: in the environment, in profiles, from the machine's role. What is
given here comes before them. None of it is shown: not by ``repr``, not in errors, not when an address is pickled into a
plan's text. docs/decisions/0043-reading-archives.md.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from commitlog_store.errors import ArchiveFailed, InvalidValue, StoreForked
from commitlog_store.files.memory import keep_freed_memory
from commitlog_store.paths import archive_hint, without_secrets

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# ``archive+file`` is the one that a reader takes: Spark's option path takes ``file:`` for a store's directory.
_LOCAL_SCHEMES = ("archive+file", "file")
OBJECT_SCHEMES = (*_LOCAL_SCHEMES, "s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
"""The schemes of addresses of object storage."""

_S3_SCHEMES = ("s3", "s3a")
_GCS_SCHEME = "gs"
_AZURE_HOST = "dfs.core.windows.net"
_SECRETS_ELSEWHERE = (
    "The address of an archive has no password, no '?' and no '#', since it is shown: credentials are given by the "
    "environment, or as options."
)
# How names of S3's directory buckets end.
_DIRECTORY_BUCKET = "--x-s3"
_OWN_KEYS = ("access_key_id", "aws_access_key_id")
# Where keys of AWS come from without a profile; obstore looks at these by itself.
_OTHER_KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# The options and the variables of each cloud that give another address than the cloud's own.
_S3_ENDPOINTS = ("endpoint", "aws_endpoint"), ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_GCS_ENDPOINTS = ("base_url", "google_base_url"), ("GOOGLE_BASE_URL",)
_AZURE_ENDPOINTS = (
    ("endpoint", "azure_endpoint", "azure_storage_endpoint"),
    ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
)

# The process that used obstore first. In its forked children the threads that answer are missing.
_users: list[int] = []


@dataclass(frozen=True, kw_only=True)
class StorageAddress:
    """A prefix in a bucket, or a directory, and how a client reaches it.

    ``options`` are obstore's settings of that cloud (``endpoint``, ``region``, ``access_key_id``, ...); they are not
    shown. ``timeout_s`` is how long one request may take, how long ``obstore`` repeats a refused one, and how long a
    broken answer is asked for again. Each is looked at before the next attempt alone, so that a store which answers
    badly all the time gives an error after up to three times ``timeout_s``.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    timeout_s: float = 60.0

    @classmethod
    def parse(cls, text: str, *, options: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> StorageAddress:
        """``InvalidValue``, which shows no credentials."""
        if not isinstance(text, str):
            raise InvalidValue(f"The address of object storage is a text, not of the type {type(text).__name__}.")
        try:
            parts = urlsplit(text)
        except ValueError:  # whose text may have the password
            raise InvalidValue("This is not the address of object storage.") from None
        container = parts.username is not None and parts.scheme in ("abfs", "abfss")
        if parts.password is not None or "?" in text or "#" in text or ("@" in parts.netloc and not container):
            raise InvalidValue(_SECRETS_ELSEWHERE)
        local = parts.scheme in _LOCAL_SCHEMES
        absolute = parts.path.startswith("/") and bool(parts.path.strip("/"))
        if parts.scheme not in OBJECT_SCHEMES or bool(parts.netloc) == local or (local and not absolute):
            raise InvalidValue(
                f"An archive is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, abfs://CONTAINER@ACCOUNT/PREFIX, or "
                f"archive+file:///DIRECTORY, not {without_secrets(text)!r}.{archive_hint(text)}"
            )
        return cls(url=text.rstrip("/"), options=dict(options or {}), timeout_s=timeout_s)

    def __str__(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        """Whether it is a directory."""
        return bool(self.directory)

    @property
    def directory(self) -> str:
        """The directory that it is; empty for object storage."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme in _LOCAL_SCHEMES else ""

    @property
    def lists_in_order(self) -> bool:
        """Whether a listing begins with the first names. Directories do not, nor do directory buckets of S3 Express."""
        return not self.is_local and not urlsplit(self.url).netloc.endswith(_DIRECTORY_BUCKET)

    def connect(self, *, makes_directory: bool = False) -> ObjectStore:
        """A client of it. ``InvalidValue`` for settings that it does not know, and without obstore; ``StoreForked``.

        ``ArchiveFailed`` for a directory that cannot be made.
        """
        obstore = load_obstore()
        self._refuse_forked()
        parts = urlsplit(self.url)
        try:
            if self.is_local:
                local: ObjectStore = obstore.store.LocalStore(prefix=self.directory, mkdir=makes_directory)
                return local
            made: ObjectStore = obstore.store.from_url(
                _full_address(self.url),
                config=self._settings(parts.scheme),
                client_options=self._client_options(parts.scheme),
                retry_config=self._retries(),
                **self._credentials(parts.scheme),
            )
        except (obstore.exceptions.BaseError, TypeError, ValueError) as error:
            raise InvalidValue(f"The settings for {self.url} are not those of a client of it: {said(error)}") from None
        except OSError as error:
            reason = said(error)
            if not self.is_local:
                raise ArchiveFailed(f"Cannot use {self.url}: {reason}.") from None
            raise ArchiveFailed(f"{self.directory} cannot be made, or is not a directory: {reason}.") from None
        return made

    def _settings(self, scheme: str) -> dict[str, str]:
        """The options as obstore takes them: ``endpoint`` is a name for all clouds here."""
        given = dict(self.options)
        if scheme == _GCS_SCHEME and "endpoint" in given:
            given.setdefault("base_url", given.pop("endpoint"))
        return given | (_bucket_settings(given) if scheme in _S3_SCHEMES else {})

    def _client_options(self, scheme: str) -> dict[str, Any]:
        names, variables = _endpoints_of(scheme)
        given = (self.options.get(name) for name in ("endpoint", *names))
        endpoint = next(filter(None, [*given, *map(os.environ.get, variables)]), "")
        # A plain endpoint is one that somebody has chosen: a compatible store of their own.
        return {"timeout": timedelta(seconds=self.timeout_s), "allow_http": endpoint.startswith("http://")}

    def _retries(self) -> dict[str, Any]:
        pauses = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2}
        return {"max_retries": 10, "backoff": pauses, "retry_timeout": timedelta(seconds=self.timeout_s)}

    def _credentials(self, scheme: str) -> dict[str, Any]:
        """A provider of the keys of a profile, which obstore does not read by itself. ``InvalidValue``."""
        if scheme not in _S3_SCHEMES or any(key in self.options for key in _OWN_KEYS):
            return {}
        if any(map(os.environ.get, _OTHER_KEYS)) or self.options.get("skip_signature"):
            return {}
        profile = os.environ.get("AWS_PROFILE")
        try:
            session = importlib.import_module("boto3").Session()
        except ModuleNotFoundError:
            if profile:
                raise InvalidValue(
                    f"AWS_PROFILE is {profile!r}, and profiles are read by boto3, which is not installed: pip install "
                    "boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
                ) from None
            return {}
        if session.get_credentials() is None:
            return {}
        provider = importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider(session)
        return {"credential_provider": provider}

    def _refuse_forked(self) -> None:
        if _users and _users[0] != os.getpid():
            raise StoreForked(
                f"This process was forked from one that had used object storage, and a client for {self.url} does not "
                "work in it. Start it in another way, such as multiprocessing's 'spawn'."
            )
        if not _users:
            _users.append(os.getpid())
            keep_freed_memory()  # obstore allocates each answer again


def _full_address(url: str) -> str:
    """``abfs://CONTAINER@ACCOUNT/PREFIX`` with the host that obstore wants to see after the account's name."""
    parts = urlsplit(url)
    if parts.username is None or parts.hostname is None or "." in parts.hostname:
        return url
    return parts._replace(netloc=f"{parts.netloc}.{_AZURE_HOST}").geturl()


def _endpoints_of(scheme: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if scheme in _S3_SCHEMES:
        return _S3_ENDPOINTS
    return _GCS_ENDPOINTS if scheme == _GCS_SCHEME else _AZURE_ENDPOINTS


def _bucket_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What a compatible store wants: by default its bucket is in the path, and a region of any name is enough."""
    if "endpoint" not in options or {"region", "aws_region"} & options.keys():
        return {}
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {} if named else {"region": "us-east-1"}


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


# An answer of S3 that says why a request failed, perhaps cut; it may repeat the session token.
_XML = re.compile(r"(?:<\?xml[^>]*>\s*)?<Error>.*?(?:</Error>|$)", re.DOTALL)
# How long a request took: another time with each repetition of the same error.
_TOOK = re.compile(r" in \d+(?:\.\d+)?(?:ns|µs|ms|s)\b")
_SAYS = re.compile(r"<(?:Code|Message)>([^<]*)</")


def said(error: Exception) -> str:
    """The sentence of an error of obstore: without its own debugging, and without what may be a signature or token."""
    text = _XML.sub(lambda answer: ": ".join(_SAYS.findall(answer[0])), str(error).partition("\n\nDebug source")[0])
    text = _TOOK.sub("", text).strip().replace("\n", " ")
    words = [word.partition("?")[0] + "?..." if "://" in word and "?" in word else word for word in text.split(" ")]
    return " ".join(words).rstrip(".")
