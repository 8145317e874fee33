"""Configuration with which a command opens a store as its owner."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import typer

from commitlog_store.cli.render import say
from commitlog_store.config import BrokerProperties, MessageStoreConfig
from commitlog_store.errors import InvalidValue, ReadFailed, StoreOpenError
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.recovery.indexed import was_indexed


def owner_config(path: str, config_file: str | None = None, commit_log: str | None = None) -> MessageStoreConfig:
    """The configuration: that of a broker's file, or the defaults.

    A store without an index stays so, unless the file has messageIndexEnable: opening it with one would build it from
    the whole log. Messages without keys make no index files; the checkpoint says that they were indexed.
    ``BadParameter`` for a file that is not one of settings, ``StoreOpenError`` for a path that is not a store, where
    opening would create one; ``StoreIOError``.
    """
    found = broker_settings(config_file, commit_log)
    check_store_directory(path)
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
