"""What a store must hold after a power cut, by the notes of ``writer``: checked after opening it, and used again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.testing import kill
from tests.crash.stored_messages import Stored, log_records
from tests.power_cut.block_device import Note
from tests.power_cut.bodies import number_of, rows_of, version_and_rows
from tests.power_cut.writer import APPLICATION, GROUP, MIRROR, SETTINGS
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer
from tests.support.stored_bodies import topic_bodies


def check_promises(root: Path, notes: Sequence[Note], flush: str) -> None:
    """``root`` holds the store and its mirror after the cut; ``notes`` are those before it.

    The store is opened, compared with the notes, used, killed, and opened again.
    """
    store = root / "store"
    if not any(note.what == "opened" for note in notes):
        return
    config = MessageStoreConfig.from_mapping(SETTINGS | {"flush_disk_type": flush, "schedule_enable": False})
    promised = _Promised(notes, flush)
    with MessageStore.open(store, config) as opened:
        opened.dispatch()
        there = log_records(store)
        promised.check_log(there)
        _check_queues(store, there)
        _check_mirror(root, there, promised)
        _check_batches(opened, there)
        _check_group(opened, promised)
        _check_half_messages(opened, store, promised)
        _check_deliveries(opened, store)
        version = _check_known_batches(opened)
        kill(opened)
    with MessageStore.open(store, config) as again, again.transaction(APPLICATION, version) as batch:
        assert batch.already_there, f"transaction {version} would be stored twice"
    assert_clean(store)


class _Promised:
    def __init__(self, notes: Sequence[Note], flush: str) -> None:
        self.by_kind: dict[str, dict[int, int]] = defaultdict(dict)
        for note in notes:
            self.by_kind[note.what][note.number] = note.place
        # The end of the log that is safe, and up to where cleaning was allowed.
        self.flushed = max(self.by_kind["flushed"], default=0)
        self.cleaned_to = max(self.by_kind["cleaning"], default=0)
        self.mirrored = max(self.by_kind["mirror"], default=0)
        self.is_sync = flush == "SYNC_FLUSH"

    def acknowledged(self, *kinds: str) -> dict[int, int]:
        """Physical offsets, by number."""
        return {number: place for kind in kinds for number, place in self.by_kind[kind].items()}

    def is_safe(self, place: int) -> bool:
        return self.is_sync or place < self.flushed

    def check_log(self, there: Sequence[Stored]) -> None:
        places = {one.physical_offset: one for one in there}
        start = there[0].physical_offset if there else 0
        end = there[-1].end if there else 0
        assert start <= self.cleaned_to, "a file is gone that no cleaning took"
        for kind in ("put", "delayed", "table"):
            for number, place in self.by_kind[kind].items():
                if place < start:
                    continue
                if self.is_safe(place):
                    assert place in places, f"{kind} {number} at {place} is lost (the log holds [{start}, {end}))"
                if place in places:
                    assert number_of(places[place].body) == number
        for version, place in self.by_kind["transaction"].items():
            assert place < start or place in places or not self.is_safe(place), f"transaction {version} is lost"


def _check_queues(store: Path, there: Sequence[Stored]) -> None:
    """Every queue has the messages that the log has of it, and no others."""
    queues: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    for one in there:
        if one.queue_offset >= 0:
            queues[one.topic, one.queue_id][one.queue_offset] = one.body
    with StoreReader.open(store) as reader:
        for (topic, queue_id), wanted in queues.items():
            first = min(wanted)
            bounds = reader.queue_info(topic, queue_id)
            assert (bounds.min_offset, bounds.max_offset) == (first, max(wanted) + 1), (topic, queue_id)
            batches = list(reader.read(topic, queue_id, first, columns=["body"], verify_crc=True))
            found = [body for batch in batches for body in batch["body"].to_pylist()]
            assert found == [wanted[offset] for offset in range(first, max(wanted) + 1)], (topic, queue_id)


def _check_batches(store: MessageStore, there: Sequence[Stored]) -> None:
    """All rows of a batch or none, and none twice."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in there:
        if one.topic == "batches":
            version, row, rows = version_and_rows(one.body)
            found[version, rows].append(row)
    start = store.physical_bounds()[0]
    for number, ((version, rows), got) in enumerate(found.items()):
        # The log may begin within the first one.
        assert got == list(range(rows)) or (number == 0 and start), f"transaction {version}: rows {got} of {rows}"
    if found:
        last = max(version for version, _ in found)
        assert {one.batch.version for one in store.batches() if one.batch.app_id == APPLICATION} == {last}


def _check_group(store: MessageStore, promised: _Promised) -> None:
    """What the group did not get before, it gets now."""
    consumed = set(promised.by_kind["consumed"])
    with store.consumer(GROUP, "orders") as consumer:
        while got := consumer.poll(1000):
            consumed |= {number_of(message.body) for message in got}
            for message in got:
                consumer.ack(message)
    left = {number_of(body) for body in topic_bodies(Path(store.path), "orders")}
    assert left <= consumed, f"the group never gets {sorted(left - consumed)[:5]}"


def _check_half_messages(store: MessageStore, path: Path, promised: _Promised) -> None:
    pending = [number_of(one.message.body) for one in store.half_messages.pending()]
    seen = Counter(number_of(body) for body in topic_bodies(path, "payments"))
    assert len(set(pending)) == len(pending)
    assert not [number for number, count in seen.items() if count > 1], "committed twice"
    assert not set(pending) & set(seen), "pending, though committed"
    if not promised.is_sync:
        return
    asked = promised.by_kind["asked-commit"].keys() | promised.by_kind["asked-rollback"].keys()
    for number in promised.by_kind["rollback"]:
        assert number not in seen, f"half message {number} was rolled back"
        assert number not in pending, f"half message {number} was rolled back, and is pending"
    for number in promised.by_kind["commit"]:
        assert number not in pending, f"half message {number} was committed, and is pending"
    if not store.physical_bounds()[0]:
        for number in promised.by_kind["commit"]:
            assert number in seen, f"half message {number} was committed, and is not there"
        for number in promised.by_kind["prepared"]:
            assert number in asked or number in pending, f"half message {number} is lost"
    for handle in store.half_messages.pending():
        store.half_messages.commit(handle.handle)


def _check_deliveries(store: MessageStore, path: Path) -> None:
    """Every delayed message is delivered once, before the cut or now."""
    Deliverer(store).everything()
    store.dispatch()
    there = log_records(path)
    waited = Counter(one.body for one in there if one.topic == "SCHEDULE_TOPIC_XXXX")
    delivered = Counter(one.body for one in there if one.topic == "later")
    assert not [body for body, count in delivered.items() if count > 1], "delivered twice"
    assert waited.keys() <= delivered.keys(), "never delivered"


def _check_known_batches(store: MessageStore) -> int:
    """The batches from before the cut are known, and a new one can be committed. Its version."""
    before = {one.batch.version for one in store.batches() if one.batch.app_id == APPLICATION}
    version = max(before, default=0) + 1
    for one in (*before, version):
        with store.transaction(APPLICATION, one) as batch:
            assert batch.already_there == (one in before)
            if not batch.already_there:
                rows = rows_of(version, 3)
                batch.put_messages(pa.table({"body": rows, "topic": ["batches"] * len(rows)}))
    return version


def _check_mirror(root: Path, there: Sequence[Stored], promised: _Promised) -> None:
    """The mirror has what it acknowledged, byte for byte as the store."""
    mirror = root / MIRROR
    if not promised.mirrored:
        return
    config = MessageStoreConfig.from_mapping(SETTINGS | {"broker_role": "SLAVE", "schedule_enable": False})
    with MessageStore.open(mirror, config) as opened:
        _, end = opened.physical_bounds()
    assert end >= promised.mirrored, f"the mirror has lost [{end}, {promised.mirrored})"
    assert_clean(mirror)
    own = {one.physical_offset: one for one in there}
    differing = [one for one in log_records(mirror) if own.get(one.physical_offset, one) != one]
    assert not differing, f"the mirror differs at {differing[0].physical_offset}"
