"""StorageAddress: ``s3://bucket/prefix`` and its kin, the settings of a client of it, and the client.

Credentials are found as users of each cloud expect: in the environment, in profiles, from the machine's role. What is
given here comes before them. None of it is shown: not by ``repr``, not in errors, not when an address is pickled into a
plan's text. docs/decisions/0043-reading-archives.md.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from commitlog_store.errors import ArchiveFailed, InvalidValue, StoreForked
from commitlog_store.files.memory import keep_freed_memory
from commitlog_store.object_storage.clients import StorageClient
from commitlog_store.object_storage.cloud_client import CloudClient, load_obstore, said
from commitlog_store.object_storage.hdfs_client import HdfsClient
from commitlog_store.paths import archive_hint, without_secrets

# ``archive+file`` is the one that a reader takes: Spark's option path takes ``file:`` for a store's directory.
_LOCAL_SCHEMES = ("archive+file", "file")
_HDFS_SCHEME = "hdfs"
OBJECT_SCHEMES = (*_LOCAL_SCHEMES, "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", _HDFS_SCHEME)
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

# The process that used obstore, or hdfs-native, first. In its forked children the threads that answer are missing.
_users: list[int] = []


@dataclass(frozen=True, kw_only=True)
class StorageAddress:
    """A prefix in a bucket, or a directory, and how a client reaches it.

    ``options`` are obstore's settings of that cloud (``endpoint``, ``region``, ``access_key_id``, ...), or Hadoop's
    (``dfs.ha.namenodes.NAME``, ...); they are not shown. ``timeout_s`` is how long one request may take, how long
    ``obstore`` repeats a refused one, and how long a broken answer is asked for again. Each is looked at before the
    next attempt alone, so that a store which answers badly all the time gives an error after up to three times
    ``timeout_s``.
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
        in_hdfs = parts.scheme == _HDFS_SCHEME
        wrong_host = bool(parts.netloc) == local and not in_hdfs  # Hadoop's settings may have the name node
        if parts.scheme not in OBJECT_SCHEMES or wrong_host or ((local or in_hdfs) and not absolute):
            raise InvalidValue(
                f"An archive is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, abfs://CONTAINER@ACCOUNT/PREFIX, "
                f"hdfs://HOST:PORT/DIRECTORY, or archive+file:///DIRECTORY, not {without_secrets(text)!r}."
                f"{archive_hint(text)}"
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

    def connect(self, *, makes_directory: bool = False) -> StorageClient:
        """A client of it. ``InvalidValue`` for settings that it does not know, and without its package;
        ``StoreForked``. ``ArchiveFailed`` for a directory that cannot be made.
        """
        scheme = urlsplit(self.url).scheme
        if scheme == _HDFS_SCHEME:
            self._refuse_forked()
            return HdfsClient.connect(self.url, self.options, self.timeout_s)
        obstore = load_obstore()
        self._refuse_forked()
        try:
            if self.is_local:
                return CloudClient(obstore.store.LocalStore(prefix=self.directory, mkdir=makes_directory))
            made = obstore.store.from_url(
                _full_address(self.url),
                config=self._settings(scheme),
                client_options=self._client_options(scheme),
                retry_config=self._retries(),
                **self._credentials(scheme),
            )
        except (obstore.exceptions.BaseError, TypeError, ValueError) as error:
            raise InvalidValue(f"The settings for {self.url} are not those of a client of it: {said(error)}") from None
        except OSError as error:
            reason = said(error)
            if not self.is_local:
                raise ArchiveFailed(f"Cannot use {self.url}: {reason}.") from None
            raise ArchiveFailed(f"{self.directory} cannot be made, or is not a directory: {reason}.") from None
        return CloudClient(made)

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
