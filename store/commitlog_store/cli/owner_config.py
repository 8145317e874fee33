"""How a command opens a store as its owner: with which configuration, or at the server that owns it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import typer

from commitlog_store.cli.render import say
from commitlog_store.config import BrokerProperties, MessageStoreConfig
from commitlog_store.errors import InvalidValue, NotAStore, ReadFailed, StoreNotFound, StoreOpenError
from commitlog_store.files import disk
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.paths import COMMIT_LOG, REMOTE_SCHEMES
from commitlog_store.recovery.indexed import was_indexed

if TYPE_CHECKING:
    from commitlog_store import RemoteStore
    from commitlog_store.store import MessageStore

# For a call of a server; and for one that may take long, such as the deletion of many files.
DEFAULT_RPC_TIMEOUT_S = 30.0
_LONG_RPC_TIMEOUT_S = 300.0


def is_address(path: str) -> bool:
    """Whether a store's path is the address of a server."""
    return path.startswith(REMOTE_SCHEMES)


def refuse_at_address(options: Mapping[str, object]) -> None:
    """Refuse, for the address of a server, the first of these options that is given. ``BadParameter``."""
    for option, value in options.items():
        if value not in (None, False):  # an empty text is given, too
            raise typer.BadParameter(
                "It is for a directory: at an address, the server owns the store, and has its settings.",
                param_hint=option,
            )


@contextlib.contextmanager
def open_owner(path: str, commit_log: str | None, lock_timeout_s: float) -> Iterator[MessageStore | RemoteStore]:
    """The store to change, owned by this process, or at the server of the address. The errors of both openings."""
    if is_address(path):
        with connect_to(path, lock_timeout_s) as served:
            yield served
    else:
        config = owner_config(path, commit_log=commit_log)
        from commitlog_store.store import MessageStore  # here: `doctor` does without

        with MessageStore.open(path, config, lock_timeout_s=lock_timeout_s) as store:
            yield store


def refuse_missing(path: str, *, create: bool) -> bool:
    """Whether the directory is none of a store yet, so that opening creates one; ``create`` allows that.

    ``StoreNotFound`` and ``NotAStore`` without it, and the other errors of ``check_store_directory`` in any case.
    """
    try:
        check_store_directory(path)
    except (StoreNotFound, NotAStore) as error:
        full = disk.absolute_path(path)
        is_empty = disk.is_directory(full) and not disk.list_names(full)
        if not create and (is_empty or isinstance(error, StoreNotFound)):
            raise type(error)(f"{error} With --create, a new store is created.", path=path) from None
        if not create:
            raise
        return True
    return False


def connect_to(address: str, lock_timeout_s: float = 0.0, *, rpc_timeout_s: float = _LONG_RPC_TIMEOUT_S) -> RemoteStore:
    """The store at a server, by default for calls that may take long. ``BadParameter`` for a ``lock_timeout_s``."""
    refuse_at_address({"--lock-timeout": lock_timeout_s})
    from commitlog_store import connect  # here: with a directory, nothing of Arrow Flight is imported

    return connect(address, rpc_timeout_s=rpc_timeout_s)


def owner_config(path: str, config_file: str | None = None, commit_log: str | None = None) -> MessageStoreConfig:
    """The configuration: that of a broker's file, or the defaults.

    A store without an index stays so, unless the file has messageIndexEnable: opening it with one would build it from
    the whole log. Messages without keys make no index files; the checkpoint says that they were indexed.
    ``BadParameter`` for a file that is not one of settings, or names another store's log, ``StoreOpenError`` for a path
    that is not a store, where opening would create one; ``StoreIOError``.
    """
    found = broker_settings(config_file, commit_log)
    check_store_directory(path)
    if commit_log is None:
        refuse_log_of_another(found, config_file, path)
    config = dataclasses.replace(found.config, schedule_enable=False)  # a command does what its name says
    if "message_index_enable" in found.given:
        return config
    return dataclasses.replace(config, message_index_enable=was_indexed(path))


def broker_settings(
    config_file: str | None, commit_log: str | None = None, *, used: Collection[str] = ()
) -> BrokerProperties:
    """The settings of a broker's file; the keys that are not used are printed. ``BadParameter``.

    ``commit_log``, the directory of the log, takes the place of the file's. ``used`` are keys that are none of a
    store's settings, and that the caller uses.
    """
    found = _read(config_file, used)
    if commit_log is None:
        return found
    return dataclasses.replace(found, config=dataclasses.replace(found.config, store_path_commit_log=commit_log))


def refuse_log_of_another(found: BrokerProperties, config_file: str | None, path: str) -> None:
    """``BadParameter`` where the file names the log of the store at its storePathRootDir, and ``path`` is another one.

    Beside a copy of a store, the file is often the live broker's: its log has other messages at the copy's offsets, and
    the lock of the copy does not protect that log.
    """
    log, root = found.config.store_path_commit_log, found.store_path_root_dir
    own = f"{disk.absolute_path(path)}/{COMMIT_LOG}"
    if log is not None and root and not _are_one(disk.absolute_path(path), root) and not _are_one(log, own):
        raise typer.BadParameter(
            f"The log that {config_file} names, {log}, is that of the store at {root}, not of {path}. Name the log of "
            f"{path} with --commit-log DIR: {own}, if it is in the store.",
            param_hint="--config",
        )


def _are_one(one: str, other: str) -> bool:
    """Whether two paths are of one directory, through links or a second mount of it."""
    one, other = disk.real_path(one), disk.real_path(other)
    if one == other:
        return True
    try:
        keys = disk.file_key(one), disk.file_key(other)
    except OSError:
        return False
    return keys[0] is not None and keys[0] == keys[1]


def _read(config_file: str | None, used: Collection[str]) -> BrokerProperties:
    if config_file is None:
        return BrokerProperties()
    try:
        found = BrokerProperties.read(config_file)
    except (InvalidValue, ReadFailed, StoreOpenError) as error:
        raise typer.BadParameter(str(error), param_hint="--config") from error
    unused = [key for key in found.unused if key not in used]
    if unused:
        say(f"{config_file}: not used by a store: {', '.join(unused)}.")
    return found
