"""A server that is killed as it deletes, moves a group or puts dead letters back: asked again, it is done, and once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.errors import PutNotConfirmed, TopicNotFound
from commitlog_store.retention.survey import clean_request
from tests.store.consumers.test_redrive import give_up
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, store_clock
from tests.store.serve.dying_server import Death, deaths
from tests.store.serve.kept_server import KeptServer
from tests.support.clean_store import assert_clean

# More changes of files than a call has: the server dies when the call is done, and its answer is lost.
DONE = 10_000
DEAD = [b"%d" % number for number in range(5)]

CALLS: dict[str, Callable[[RemoteStore], object]] = {
    "delete_topic": lambda store: store.delete_topic("orders", with_messages=True),
    "clean": lambda store: store.clean_as(clean_request(older_than_hours=72, max_bytes=None)),
    "reset_group_offsets": lambda store: store.commit_group_offsets("audit", {("orders", 0): 9}, expected={}),
    "redrive": lambda store: store.redrive("billing"),
}


# Other turns of the same calls.
MORE = (("delete_topic", 1), ("clean", 3), ("reset_group_offsets", DONE), ("redrive", 6))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with store_clock(Clock()), MessageStore.open(path, SMALL) as store:
        fill(store, 40)
        give_up(store, *DEAD, topic="bills")
    return path


@pytest.mark.parametrize(
    ("call", "turn"),
    [
        *(("delete_topic", turn) for turn in (4, DONE)),
        *(("clean", turn) for turn in (1, DONE)),
        ("reset_group_offsets", 1),
        *(("redrive", turn) for turn in (2, DONE)),
        *(pytest.param(*more, marks=pytest.mark.stress) for more in MORE),
    ],
)
def test_a_call_in_which_the_server_died_is_done_once(tmp_path: Path, path: Path, call: str, turn: int) -> None:
    plans = tmp_path / "plans"
    Death(call=call, turn=turn).plan(plans, 0)
    before = log_bases(path)
    with KeptServer("tests.store.serve.dying_server", plans, path, log=tmp_path / "log") as server:
        with connect(server.url) as remote:
            with pytest.raises(PutNotConfirmed, match=f"to {call} was lost, and it may have been done"):
                CALLS[call](remote)
            assert len(deaths(plans)) == 1
            with contextlib.suppress(TopicNotFound):  # it was done
                CALLS[call](remote)
        server.stop()
    with StoreReader.open(path) as reader:
        assert ("orders" in reader.topics()) == (call != "delete_topic")
        assert (log_bases(path)[0] > before[0]) == (call == "clean")
        assert reader.group_offsets("audit") == ({("orders", 0): 9} if call == "reset_group_offsets" else {})
        if call == "redrive":
            again = reader.scan("%RETRY%billing", columns=["body"]).read_all()["body"].to_pylist()
            assert again == DEAD
    assert_clean(path)
