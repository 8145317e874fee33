"""``commitlog serve`` that kills itself at a planned place of a call, for tests: each start takes the next plan.

    python -m tests.store.serve.dying_server PLANS STORE HOST:PORT

PLANS is a directory; a plan is a file in it, and the one whose name is first is the next. It is a ``Death`` as JSON.
``command_of`` has this program with a clock that deaths may set.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from commitlog_store.config import MessageStoreConfig
from commitlog_store.files import disk
from commitlog_store.paths import COMMIT_LOG, STAGING
from commitlog_store.serve import store_writes
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.run import ServeRequest, serve_until_stopped
from tests.support.disk_changes import CHANGES
from tests.support.jumping_clock import set_clock

_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=4000,
    max_hash_slot_num=100,
    max_index_num=1000,
)
_CLOCK = "clock"


@dataclass(frozen=True, kw_only=True)
class Death:
    """The server dies in the next ``call``, at its ``turn``-th change of a file (0: before all), or when it is done.

    So it dies in any case, at the latest before it answers. ``after``: so many of these calls come before that one.
    ``half``: within the first write to the log or a staged file from that change on. Other files get a few bytes at a
    time, within a page: a kill does not cut such a write in two. ``stalls``: it waits there for a file ``go`` beside
    the plans in place of dying, and makes one called ``stalled``. ``hours_ahead`` is what its clock, and that of the
    next server, is set to then; None leaves it.
    """

    call: str
    turn: int = 0
    after: int = 0
    half: bool = False
    stalls: bool = False
    hours_ahead: float | None = None

    def plan(self, plans: Path, number: int) -> None:
        plans.mkdir(exist_ok=True)
        unfinished = plans / f".{number:06}"
        unfinished.write_text(json.dumps(asdict(self)))
        unfinished.rename(plans / f"{number:06}")


def command_of(plans: Path, store: Path) -> tuple[str, ...]:
    """The module and the arguments of a server whose deaths may set its clock."""
    return "tests.support.jumping_clock", str(plans / _CLOCK), __name__, str(plans), str(store)


def plans_left(plans: Path) -> int:
    return len(list(plans.glob("[0-9]*")))


def deaths(plans: Path) -> list[dict[str, Any]]:
    """How the servers died, or stalled: the plan, ``changes``, how many files it had changed in that call, and ``cut``,
    whether a write was cut in two."""
    path = plans / "deaths"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class _Dying:
    """Watches the calls of a server."""

    def __init__(self, plans: Path) -> None:
        self._plans = plans
        self._lock = threading.RLock()
        self._death: Death | None = None
        self._changes = self._let_through = 0
        self._cut = False
        for name in CHANGES:
            setattr(disk, name, self._watching(name, getattr(disk, name)))
        calls: Any = store_writes.WRITES
        for name in ("upload_part", "commit_batch"):
            calls[name] = self._dying(name, calls[name])
        once: Any = store_writes.ONCE
        for name in ("delete_topic", "clean", "reset_group_offsets", "redrive"):
            once[name] = self._dying(name, once[name])

    def _watching(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            with self._lock:  # nothing else happens once it is to die
                if self._death is not None:
                    self._changes += 1
                    if self._death.half and self._changes >= self._death.turn:
                        if name == "write_at" and _is_long(arguments[0]):
                            target, data, offset = arguments
                            real(target, memoryview(data).cast("B")[: memoryview(data).nbytes // 2], offset, **named)
                            self._cut = True
                            self._die()
                    elif self._changes == self._death.turn:
                        self._die()
            return real(*arguments, **named)

        return change

    def _dying(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with self._lock:
                plan = min(self._plans.glob("[0-9]*"), default=None)
                found = None if plan is None else Death(**json.loads(plan.read_text()))
                mine = plan is not None and found is not None and found.call == name and self._death is None
                if mine and found is not None and self._let_through < found.after:
                    self._let_through += 1
                    mine = False
                if mine and plan is not None:
                    plan.unlink()
                    self._death, self._changes, self._let_through, self._cut = found, 0, 0, False
                    if found is not None and not found.turn:
                        self._die()
            answer = real(*arguments)
            with self._lock:
                if mine and self._death is not None:
                    self._die()
            return answer

        return call

    def _die(self) -> None:
        assert self._death is not None
        with (self._plans / "deaths").open("a") as stream:
            stream.write(json.dumps(asdict(self._death) | {"changes": self._changes, "cut": self._cut}) + "\n")
        if self._death.hours_ahead is not None:
            set_clock(self._plans / _CLOCK, self._death.hours_ahead)
        if not self._death.stalls:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        self._death = None
        (self._plans / "stalled").touch()
        while not (self._plans / "go").exists():
            time.sleep(0.01)
        (self._plans / "stalled").unlink()


def _is_long(descriptor: int) -> bool:
    """Whether a file gets many pages at once."""
    path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return path.parent.name == COMMIT_LOG or STAGING in path.parts


def main(plans: str, store: str, place: str) -> None:
    _Dying(Path(plans))
    listen = ListenSettings.parse(place, tls=None, tokens=None)
    request = ServeRequest(stores=[store], listen=listen, config=_CONFIG)
    serve_until_stopped(request, lambda text: print(f"commitlog: {text}", file=sys.stderr, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
