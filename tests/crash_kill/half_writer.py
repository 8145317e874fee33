"""The process that is killed: ``python -m tests.crash_kill.half_writer STORE ROUND``.

It opens the store and ends what is pending, then prepares half messages and ends each, until it is killed. In every
second round a thread checks them beside it. Each line says what has returned: ``prepared``, ``commit`` or ``rollback``,
and the body.
"""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

from commitlog_store import Message, MessageExt, MessageStore, MessageStoreConfig
from commitlog_store.errors import HalfMessageEnded
from commitlog_store.half_message import Answer
from tests.crash_kill.writer import SMALL

TOPIC = "half-kills"


def main(path: str, round_: int) -> None:
    """Prepare and end until killed."""
    chance = random.Random(round_)
    settings = {**SMALL, "transaction_time_out": 0, "transaction_check_max": 10_000, "transaction_check_interval": 1}
    store = MessageStore.open(Path(path), MessageStoreConfig(**settings))  # type: ignore[arg-type]
    half = store.half_messages

    def answer(message: MessageExt) -> Answer:
        return "commit" if message.body.endswith(b"0") else "unknown"

    if round_ % 2:
        half.start_checks(answer)
    number = 0
    while True:
        body = f"{round_}:{number}"
        number += 1
        handle = half.prepare(Message(topic=TOPIC, body=body.encode(), queue_id=number % 2), "payments")
        print("prepared", body, flush=True)
        how = chance.choice(["commit", "commit", "rollback", "check"])
        if how == "check":
            half.check(answer)
        else:
            with contextlib.suppress(HalfMessageEnded):  # the checks were quicker
                getattr(half, how)(handle)
                print(how, body, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
