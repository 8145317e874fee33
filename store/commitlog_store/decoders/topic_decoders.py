"""TopicDecoders: which decoder a topic's bodies have, by ``TOPIC=KIND:ARGUMENT``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from commitlog_store.decoders.decoder_process import Decoded, DecoderProcess
from commitlog_store.errors import InvalidValue

_RULE = re.compile(r"(?:(?P<topic>[^=:]+)=)?(?P<kind>[A-Za-z][A-Za-z0-9_.-]*)(?::(?P<argument>.*))?", re.DOTALL)


class DecoderRule(NamedTuple):
    """``topic`` is a name or a shell pattern."""

    topic: str
    kind: str
    argument: str

    @classmethod
    def parse(cls, text: str) -> DecoderRule:
        """Of ``TOPIC=KIND:ARGUMENT``; without a topic it is for all. ``InvalidValue``."""
        found = _RULE.fullmatch(text)
        if found is None:
            raise InvalidValue(
                "A decoder is TOPIC=KIND:ARGUMENT, such as 'orders=msgpack', 'pay*=avro:pay.avsc' or "
                f"'orders=protobuf:orders.desc:shop.Order', not {text!r}."
            )
        return cls(found["topic"] or "*", found["kind"], found["argument"] or "")


class TopicDecoders:
    """The first rule that a topic matches decodes its bodies. A context: the processes end with it.

    ``failed`` is the number of bodies that were not decoded, ``first_problem`` why the first of them was not.
    """

    def __init__(self, rules: Sequence[DecoderRule] = ()) -> None:
        self._rules = [(rule.topic, (rule.kind, rule.argument)) for rule in rules]
        self.failed, self.first_problem = 0, ""
        self._processes = {place: DecoderProcess(*place) for _, place in self._rules}

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TopicDecoders:
        """``InvalidValue``."""
        return cls([DecoderRule.parse(text) for text in texts])

    def __bool__(self) -> bool:
        return bool(self._rules)

    def start(self) -> None:
        """Start all decoders, so that a wrong one is found before it is needed. ``InvalidValue``."""
        try:
            for process in self._processes.values():
                process.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    def __enter__(self) -> TopicDecoders:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kind_of(self, topic: str) -> str:
        """Empty for a topic without a decoder."""
        process = self._of(topic)
        return "" if process is None else process.kind

    def decode(self, topic: str, body: bytes) -> Decoded | None:
        """None for a topic without a decoder."""
        process = self._of(topic)
        if process is None:
            return None
        found = process.decode(body)
        if found.json is None:
            self.failed, self.first_problem = self.failed + 1, self.first_problem or found.problem
        return found

    def decode_each(self, messages: Iterable[tuple[str, bytes]], *, seconds: float) -> Iterator[Decoded | None]:
        """``decode`` of topics and bodies; after so many seconds, those that are left have a problem."""
        ends = time.monotonic() + seconds
        for topic, body in messages:
            if self._of(topic) is not None and time.monotonic() >= ends:
                yield Decoded(None, f"the messages before it took {seconds:g} s")
            else:
                yield self.decode(topic, body)

    def _of(self, topic: str) -> DecoderProcess | None:
        place = next((place for pattern, place in self._rules if fnmatchcase(topic, pattern)), None)
        return None if place is None else self._processes[place]
