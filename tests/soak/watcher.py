"""What looks at the store all the time and deletes old files, until SIGTERM: ``python -m tests.soak.watcher BASE``.

The journal has a line for each look, with its fault if it has one.
"""

from __future__ import annotations

import http.client
import logging
import sys
import traceback
from collections.abc import Callable

from commitlog_store import StoreReader, Verdict, assess_store, connect
from commitlog_store.errors import PutNotConfirmed, RemoteFailed
from tests.soak.base import GROUP, PLAIN, TOPICS, Base, Stopping
from tests.soak.comparison import positions_ahead
from tests.soak.journal import Journal
from tests.soak.producer import RPC_TIMEOUT_S

PAGES = ("/", "/topics", f"/topics/{PLAIN}", "/groups", f"/groups/{GROUP}", "/metrics", "/healthz", "/figures.json")
# The log keeps about so much: one or two of its files.
KEPT_BYTES = 1 << 20


class Watcher:
    """Its looks, by name; each returns what is wrong, or nothing."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.looks: dict[str, Callable[[], str]] = {
            "doctor": lambda: self.assess(str(base.store), deep=False),
            "clean": self.clean,
            "pages": self.pages,
            "positions": lambda: "; ".join(positions_ahead(self.base)),
            "doctor deep": lambda: self.assess(str(base.store), deep=True),
            "history": self.history,
            "doctor by address": lambda: self.assess(base.url, deep=False),
            "doctor deep by address": lambda: self.assess(base.url, deep=True),
        }

    def assess(self, place: str, *, deep: bool) -> str:
        found = assess_store(place, deep=deep)
        wrong = found.verdict not in (Verdict.OK, Verdict.WARNING) or found.lost or found.errors
        return f"{found.verdict} {found.lost} lost: {found.findings}" if wrong else ""

    def clean(self) -> str:
        """Files that the archive, the group and the stream by address have go."""
        keep_for = [f"archive:{self.base.archive_url}", GROUP]
        with connect(self.base.url, rpc_timeout_s=RPC_TIMEOUT_S) as store:
            store.clean(max_bytes=KEPT_BYTES, keep_for=keep_for)
        return ""

    def pages(self) -> str:
        wrong = []
        for page in PAGES:
            connection = http.client.HTTPConnection("127.0.0.1", self.base.http_port, timeout=RPC_TIMEOUT_S)
            try:
                connection.request("GET", page)
                answer = connection.getresponse()
                answer.read()
                if answer.status >= 400 and answer.status != 503:
                    wrong.append(f"{page}: {answer.status}")
            except (OSError, http.client.HTTPException):
                return ""  # the server is being started again
            finally:
                connection.close()
        return ", ".join(wrong)

    def history(self) -> str:
        """The first and the last message of each queue, over retention."""
        if not any(self.base.path("archive").rglob("manifest*")):
            return ""
        with StoreReader.open(str(self.base.store), archive=self.base.archive_to_read) as reader:
            for topic in set(TOPICS) & set(reader.topics()):
                for queue in reader.queues(topic):
                    if queue.min_offset:
                        return f"{topic}, queue {queue.queue_id} begins at {queue.min_offset}"
                    wanted = min(50, queue.max_offset)
                    rows = sum(len(batch) for batch in reader.read(topic, queue.queue_id, 0, wanted))
                    if rows != wanted:
                        return f"{topic}, queue {queue.queue_id}: {rows} rows of the first {wanted}"
        return ""


def main(directory: str) -> None:
    logging.basicConfig()
    stopping = Stopping()
    base = Base.read(directory)
    journal = Journal(base.journal("watcher"))
    watcher = Watcher(base)
    while not stopping:
        for name, look in watcher.looks.items():
            if stopping:
                break
            try:
                fault = look()
            except (RemoteFailed, PutNotConfirmed):  # the server is being started again
                continue
            except Exception:  # noqa: BLE001 - whatever it is, the campaign shows it
                fault = traceback.format_exc()
            journal.write({"look": name, "fault": fault} if fault else {"look": name})
        stopping.pause(1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
