"""A reader at a server takes what a reader of the directory takes, and refuses the rest with the same kind of error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CommitLogError, InvalidValue
from tests.store.damage.test_wrong_arguments import WRONG
from tests.store.serve.servers import served


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreReader, StoreReader]]:
    """Of a store that the server owns: by its address, and of its directory."""
    with MessageStore.open(tmp_path_factory.mktemp("owned") / "store") as store:
        for number in range(3):
            store.put("a", b"x", queue_id=0, keys=[f"k{number}"])
        store.dispatch()
        with served(owned=store) as url, StoreReader.open(url) as far, StoreReader.open(store.path) as near:
            yield far, near


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_the_wrong_type_is_refused(readers: tuple[StoreReader, StoreReader], name: str) -> None:
    call, _ = WRONG[name]
    for reader in readers:
        with pytest.raises(InvalidValue):
            call(reader)


ZERO, ONE = np.int64(0), np.int32(1)
NUMBERS: dict[str, Callable[[Any], object]] = {
    "message_at": lambda reader: reader.message_at(ZERO),
    "read": lambda reader: [batch.num_rows for batch in reader.read("a", ZERO, ONE, np.uint8(3))],
    "store_timestamp": lambda reader: reader.store_timestamp("a", ZERO, ONE),
    "get_message": lambda reader: reader.get_message("a", ZERO, ONE, np.int16(5)).messages,
    "fence": lambda reader: reader.fence("a", ZERO, ONE),
    "queue_info": lambda reader: reader.queue_info("a", ZERO),
    "wait_for_any": lambda reader: reader.wait_for_any({("a", ZERO): ONE}, 0),
    "first_offset_from": lambda reader: reader.first_offset_from("a", ZERO, ZERO, 0, ONE),
    "offset_by_time": lambda reader: reader.offset_by_time("a", ZERO, np.int64(1_700_000_000_000)),
    "query": lambda reader: reader.query("a", "k0", limit=ONE),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_integers_of_numpy_are_integers(readers: tuple[StoreReader, StoreReader], name: str) -> None:
    """As those that a program takes from a table are."""
    far, near = (NUMBERS[name](reader) for reader in readers)
    assert far == near


BEYOND: dict[str, Callable[[StoreReader], object]] = {
    "a queue id": lambda reader: reader.queue_infos([("a", 2**70)]),
    "a place": lambda reader: reader.message_at(2**70),
    "an id": lambda reader: reader.message_by_id("\ud800"),
    "a topic": lambda reader: reader.queues("\ud800"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_cannot_travel_is_an_error_of_this_package(readers: tuple[StoreReader, StoreReader], name: str) -> None:
    for reader in readers:
        with pytest.raises(CommitLogError):
            BEYOND[name](reader)


def test_no_message_has_an_offset_below_0(readers: tuple[StoreReader, StoreReader]) -> None:
    for reader in readers:
        assert reader.fences([("a", 0, -1)]) == [None]
