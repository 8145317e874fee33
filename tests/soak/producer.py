"""Producers that number what they put, until SIGTERM: ``python -m tests.soak.producer NAME BASE``.

``NAME`` is a kind, with a number if there are several. Each message is put once, whatever the answer, and its body says
whose it is: ``NAME/NUMBER/``. The journal has a line before the put, and one with the answer: ``places`` of what was
acknowledged, ``refused`` for what is not stored.
A transaction, a commit and a rollback are repeated until their outcome is known.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from commitlog_store import Message, PutMessageResult, RemoteStore, connect
from commitlog_store.errors import (
    HalfMessageEnded,
    HalfMessageNotFound,
    PutNotConfirmed,
    PutRefused,
    RemoteFailed,
    TransactionEnded,
)
from commitlog_store.half_message import HalfMessageHandle
from tests.soak.base import HALVES, LATER, PLAIN, WHOLE, Base, Stopping
from tests.soak.journal import Journal, Line, last_number, lines_of

_PADDING = b"." * 1_500
_ROWS = 20
# What a put may raise without an answer: a server that is started again.
RPC_TIMEOUT_S = 20.0


class Producer:
    """What all kinds share: the connection, the journal, the next number."""

    def __init__(self, name: str, base: Base, stopping: Stopping) -> None:
        self.name = name
        self.base = base
        self.stopping = stopping
        self.number = last_number(base.journal(name))
        self.journal = Journal(base.journal(name))
        self.random = random.Random(f"{name}-{self.number}")

    def next(self) -> int:
        self.number += 1
        return self.number

    def body(self, number: int, row: int | None = None) -> bytes:
        part = "" if row is None else f"{row}/"
        return f"{self.name}/{number}/{part}".encode() + _PADDING

    def answered(self, number: int, put: Callable[[], list[list[int]]], **intent: object) -> None:
        """Put once, between two lines of the journal."""
        self.journal.write({"n": number, "t": int(time.time() * 1000), **intent})
        try:
            self.journal.write({"n": number, "places": put()})
        except (PutRefused, RemoteFailed) as error:
            self.journal.write({"n": number, "refused": repr(error)})
        except PutNotConfirmed as error:
            self.journal.write({"n": number, "unknown": repr(error)})


def place(result: PutMessageResult) -> list[int]:
    result.raise_for_status()
    return [result.queue_id, result.queue_offset, result.physical_offset]


def puts(producer: Producer, store: RemoteStore) -> None:
    """A message by itself, or a table, which may be stored in part: its rows have a status each."""
    number = producer.next()
    if producer.random.random() < 0.7:
        message = Message(topic=PLAIN, body=producer.body(number), keys=[f"{producer.name}-{number}"])
        producer.answered(number, lambda: [place(store.put_message(message))], topic=PLAIN)
        return
    bodies = [{"body": producer.body(number, row)} for row in range(_ROWS)]
    producer.journal.write({"n": number, "topic": PLAIN, "rows": _ROWS})
    try:
        rows = store.put_messages(bodies, topic=PLAIN).rows.to_pylist()
    except RemoteFailed as error:
        producer.journal.write({"n": number, "refused": repr(error)})
        return
    except PutNotConfirmed as error:
        producer.journal.write({"n": number, "unknown": repr(error)})
        return
    found = [
        [row["queueId"], row["queueOffset"], row["physicalOffset"]] if row["status"] == "PUT_OK" else row["status"]
        for row in rows
    ]
    producer.journal.write({"n": number, "table": found})


def transactions(producer: Producer, store: RemoteStore) -> None:
    """The version after the newest one that is known to be stored, again and again until it is."""
    done = [line["n"] for line in lines_of(producer.base.journal(producer.name)) if "committed" in line]
    number = max(done, default=0) + 1
    bodies = [{"body": producer.body(number, row)} for row in range(_ROWS)]
    producer.journal.write({"n": number, "topic": WHOLE, "rows": _ROWS})
    try:
        with store.transaction(producer.name, number) as batch:
            if not batch.already_there:
                batch.put_messages(bodies[:7], topic=WHOLE)
                batch.put_messages(bodies[7:], topic=WHOLE)
        producer.journal.write({"n": number, "committed": True})
    except (TransactionEnded, PutNotConfirmed, RemoteFailed, PutRefused) as error:
        producer.journal.write({"n": number, "again": repr(error)})


def delayed(producer: Producer, store: RemoteStore) -> None:
    """Delay levels and timers."""
    number = producer.next()
    delay_ms = producer.random.choice([1_000, 5_000, 1_500, 2_750])
    body, delay = producer.body(number), timedelta(milliseconds=delay_ms)
    producer.answered(number, lambda: [place(store.put(LATER, body, delay=delay))], topic=LATER, delay=delay_ms)


def halves(producer: Producer, store: RemoteStore) -> None:
    """A half message that is committed or rolled back, after those that a killed run has left."""
    for line in unfinished(producer):
        end(producer, store, line)
    number = producer.next()
    outcome = producer.random.choice(["commit", "commit", "rollback"])
    producer.journal.write({"n": number, "topic": HALVES, "outcome": outcome})
    message = Message(topic=HALVES, body=producer.body(number))
    try:
        handle = store.half_messages.prepare(message, producer_group=producer.name)
    except (PutRefused, RemoteFailed, PutNotConfirmed) as error:
        producer.journal.write({"n": number, "unprepared": repr(error)})
        return
    line = {"n": number, "handle": str(handle), "outcome": outcome}
    producer.journal.write(line)
    end(producer, store, line)


def unfinished(producer: Producer) -> list[Line]:
    lines = list(lines_of(producer.base.journal(producer.name)))
    ended = {line["n"] for line in lines if "ended" in line or "gone" in line}
    return [line for line in lines if "handle" in line and line["n"] not in ended]


def end(producer: Producer, store: RemoteStore, line: Line) -> None:
    handle = HalfMessageHandle.parse(line["handle"])
    is_commit = line["outcome"] == "commit"
    half = store.half_messages
    try:
        (half.commit if is_commit else half.rollback)(handle)
    except HalfMessageEnded as error:  # by the call before, whose answer was lost
        if error.committed != is_commit:
            producer.journal.write({"n": line["n"], "wrong": repr(error)})
    except HalfMessageNotFound as error:  # retention was faster; whether it had ended is not known
        producer.journal.write({"n": line["n"], "gone": repr(error)})
        return
    except (PutNotConfirmed, RemoteFailed, PutRefused):
        return  # again before the next one
    producer.journal.write({"n": line["n"], "ended": line["outcome"]})


KINDS = {"puts": puts, "transactions": transactions, "delayed": delayed, "halves": halves}
# Seconds between two steps.
PACES = {"puts": 0.005, "transactions": 0.1, "delayed": 0.05, "halves": 0.05}


def connected(base: Base, stopping: Stopping) -> Iterator[RemoteStore]:
    """One connection after the other, since a server that is being started again may take longer than a timeout."""
    while not stopping:
        try:
            with connect(base.url, rpc_timeout_s=RPC_TIMEOUT_S) as store:
                yield store
        except RemoteFailed:
            stopping.pause(0.2)


def main(name: str, directory: str) -> None:
    logging.basicConfig()
    stopping = Stopping()
    base = Base.read(directory)
    producer = Producer(name, base, stopping)
    kind = name.partition("-")[0]
    for store in connected(base, stopping):
        while not stopping:
            KINDS[kind](producer, store)
            stopping.pause(PACES[kind])


if __name__ == "__main__":
    main(*sys.argv[1:])
