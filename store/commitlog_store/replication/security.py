"""Security: the token and TLS of a connection between two stores of this package, from their files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue, ReadFailed
from commitlog_store.files import disk

__all__ = ["Security", "security_of"]

# Bytes of a token; far more than one needs.
_LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class Security:
    """``token`` is empty without one; the contexts are None without TLS."""

    token: str = ""
    as_master: ssl.SSLContext | None = None
    as_slave: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return "<Security>"  # a token is not for logs


def security_of(config: MessageStoreConfig) -> Security:
    """What the settings ask for. ``InvalidValue`` for files that do not serve, ``ReadFailed``."""
    certificate, key, trusted = config.ha_tls_certificate, config.ha_tls_key, config.ha_tls_ca
    if bool(certificate) != bool(key):
        raise InvalidValue(
            "ha_tls_certificate and ha_tls_key belong together: give both or none.",
            settings=("ha_tls_certificate", "ha_tls_key"),
        )
    as_master = as_slave = None
    if certificate:
        as_master = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            as_master.load_cert_chain(certificate, key)
        except OSError as error:  # ssl.SSLError is one
            raise _bad_file(
                f"{certificate} and {key}", "ha_tls_certificate", "a certificate and its key", error
            ) from error
    if trusted:
        as_slave = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            as_slave.load_verify_locations(trusted)
        except OSError as error:
            raise _bad_file(trusted, "ha_tls_ca", "certificates", error) from error
    for context in (as_master, as_slave):
        if context is not None:
            context.minimum_version = ssl.TLSVersion.TLSv1_2
    return Security(_token(config.ha_token_file), as_master, as_slave)


def _token(path: str) -> str:
    if not path:
        return ""
    try:
        token = disk.read_file(path, _LONGEST_TOKEN).decode().strip()
    except OSError as error:
        raise ReadFailed("read", path=path, cause=error) from error
    except UnicodeDecodeError as error:
        raise InvalidValue(f"The token in {path} (ha_token_file) is not UTF-8 text.") from error
    if not token:
        raise InvalidValue(f"The file {path} (ha_token_file) is empty; it holds the token, a text.")
    return token


def _bad_file(path: str, setting: str, expected: str, error: OSError) -> InvalidValue:
    return InvalidValue(f"{path} ({setting}): expected {expected} in PEM, found: {error}.", settings=(setting,))
