"""The decoders of ``--decode``, and what a command says of bodies that they could not decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from commitlog_store.cli.render import say
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.queries.counted import counted


@contextmanager
def decoding(rules: Sequence[str] | None) -> Iterator[TopicDecoders]:
    """``InvalidValue`` for a rule that is wrong."""
    with TopicDecoders.parse(rules or ()) as decoders:
        yield decoders
        if decoders.failed:
            failed = counted(decoders.failed, "message")
            say(f"The bodies of {failed} were not decoded. The first: {decoders.first_problem}.")
