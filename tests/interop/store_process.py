"""A store in a process of its own, RocketMQ's or this package's, driven by commands, and killed.

Both programs take a command a line on stdin and answer each with a line on stdout, in JSON: ``java/RocketMqStore.java``
says which there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.interop.command_process import CommandFailed, CommandProcess, Json

# So many puts are under way at a time: a kill interrupts some of them.
PUTS_UNDER_WAY = 16


class StoreProcess(CommandProcess):
    """A running process and the store that it has open. Use it as a context manager: it is killed at the end."""

    def __init__(self, command: Sequence[str], path: Path, settings: Mapping[str, object], log: Path) -> None:
        self.path = path
        super().__init__(command, log)
        try:
            self.ask("open", path=str(path), settings=dict(settings))
        except CommandFailed:
            self.kill()
            raise

    def __enter__(self) -> StoreProcess:
        return self

    def put_all(self, operations: Iterable[Json]) -> Iterator[tuple[Json, Json]]:
        """Put, and give each operation with its reply; the next ones are under way by then.

        After a ``kill`` it gives those that were still acknowledged, and ends.
        """
        waiting: deque[Json] = deque()
        for operation in operations:
            self._send("put", operation)
            waiting.append(operation)
            if len(waiting) == PUTS_UNDER_WAY:
                yield waiting.popleft(), self._reply()
            if self._ended:
                break
        while waiting and not self._ended:
            yield waiting.popleft(), self._reply()
        if self._ended:
            yield from zip(waiting, self._replies_left(), strict=False)

    def close(self) -> None:
        """Close the store in order, and end the process."""
        self.ask("close")
        self.kill()
