"""Where a campaign keeps everything: addresses, directories, topics, as each of its processes finds them."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PLAIN, WHOLE, LATER, HALVES, REMOTING = "plain", "whole", "later", "halves", "remoting"
TOPICS = (PLAIN, WHOLE, LATER, HALVES, REMOTING)
# What Spark copies by the address; by the directory it copies all of them.
STREAMED = (PLAIN, WHOLE, HALVES)
GROUP, REMOTING_GROUP = "workers", "remoting-workers"


@dataclass(frozen=True)
class Base:
    """The directory of a campaign, with the ports of its servers."""

    directory: str
    port: int
    http_port: int
    rocketmq_port: int
    sink_port: int

    @classmethod
    def read(cls, directory: str) -> Base:
        return cls(**json.loads(Path(directory, "base.json").read_text()))

    def write(self) -> None:
        self.path("base.json").write_text(json.dumps(asdict(self)))

    def path(self, *names: str) -> Path:
        return Path(self.directory, *names)

    @property
    def store(self) -> Path:
        return self.path("store")

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    @property
    def sink_url(self) -> str:
        return f"grpc://127.0.0.1:{self.sink_port}"

    @property
    def archive_url(self) -> str:
        return f"file://{self.path('archive')}"

    @property
    def archive_to_read(self) -> str:
        return f"archive+{self.archive_url}"

    def journal(self, name: str) -> Path:
        return self.path("journals", f"{name}.jsonl")

    def log(self, name: str) -> Path:
        return self.path("logs", f"{name}.log")


class Stopping:
    """Set by SIGTERM: a program ends after the step that it is in."""

    def __init__(self) -> None:
        self._asked = False
        self._pause = threading.Lock()
        self._pause.acquire()
        signal.signal(signal.SIGTERM, self._ask)

    def __bool__(self) -> bool:
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def pause(self, seconds: float) -> None:
        """Producers are paced: the machine has two cores, and every program here gets a share."""
        self._pause.acquire(timeout=seconds)


def properties_of(config: Mapping[str, Any]) -> str:
    """The text of a broker's file of settings."""
    return "".join(f"{name}={value}\n" for name, value in config.items())
