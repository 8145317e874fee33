"""Options of commands that look at archives in object storage: where one is, its cache, and what reading it cost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import ArchiveOption, EndpointOption, option
from commitlog_store.cli.render import say
from commitlog_store.cli.values import size_option
from commitlog_store.object_storage.counted import counted_storage
from commitlog_store.paths import ARCHIVE_SCHEMES
from commitlog_store.queries.texts import counted
from commitlog_store.reader import StoreReader
from commitlog_store.storage_stats import StorageStats

CacheDirOption = Annotated[
    str | None,
    option(
        "DIR",
        "Keep what is fetched from an archive there; default: the environment's COMMITLOG_CACHE_DIR.",
        "--cache-dir",
    ),
]
CacheSizeOption = Annotated[
    int | None,
    option("SIZE", "With --cache-dir: at most so many bytes; default: 10G.", "--cache-size", parser=size_option),
]
StatsOption = Annotated[
    bool, typer.Option("--stats", help="At the end, the requests to object storage and the bytes fetched.")
]


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The values of the options."""

    archive: ArchiveOption = None
    endpoint: EndpointOption = None
    cache_dir: CacheDirOption = None
    cache_size: CacheSizeOption = None
    stats: StatsOption = False

    def arguments(self, path: str) -> dict[str, Any]:
        """Those of ``StoreReader.open``: only what was given. ``BadParameter`` for those of an archive without one."""
        of_archive = {"--endpoint": self.endpoint, "--cache-dir": self.cache_dir, "--cache-size": self.cache_size}
        hint = ", ".join(name for name, value in of_archive.items() if value is not None)
        if hint and self.archive is None and not path.startswith(ARCHIVE_SCHEMES):
            what = "For an archive: PATH is s3://BUCKET/PREFIX, or --archive has the archive of the store at PATH."
            raise typer.BadParameter(what, param_hint=hint)
        given: dict[str, Any] = {"archive": self.archive, "cache_dir": self.cache_dir, "cache_size": self.cache_size}
        if self.endpoint is not None:
            given["storage_options"] = {"endpoint": self.endpoint}
        return {name: value for name, value in given.items() if value is not None}

    @contextmanager
    def open(self, path: str, **more: Any) -> Iterator[StoreReader]:
        """A reader of the store at ``path``, with its archive if that is given."""
        with StoreReader.open(path, **more, **self.arguments(path)) as reader:
            yield reader

    @contextmanager
    def counted(self) -> Iterator[None]:
        """At the end of the block, however it ends, what ``--stats`` says of the requests within it."""
        with counted_storage() as counter:
            try:
                yield
            finally:
                self._say(counter.stats)

    def _say(self, found: StorageStats) -> None:
        if self.stats:
            again = f", {counted(found.repeated, 'attempt')} repeated" if found.repeated else ""
            say(
                f"{counted(found.requests, 'request')} to object storage{again}: "
                f"{counted(found.bytes_fetched, 'byte')} fetched, "
                f"{counted(found.bytes_from_cache, 'byte')} from the cache."
            )


NO_STORAGE = Storage()


def takes_storage(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options, which its parameter ``storage`` gets, and with those of its other groups."""

    @functools.wraps(command)
    def run(*args: Any, storage: Storage, **given: Any) -> None:
        with storage.counted():
            command(*args, **given, storage=storage)

    return takes_groups(run)
