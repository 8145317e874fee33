"""Puts of asyncio tasks: they share syncs, block no event loop, and may be cancelled at any moment."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import InvalidValue, PutNotConfirmed, PutRefused, StoreClosed, StoreLocked
from commitlog_store.testing import parts_of
from tests.store.owner.owned_store import SYNC, Gate, open_store, rows, small
from tests.support.waiting import WAIT_LIMIT_S


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_LIMIT_S))


def test_puts_of_many_tasks_share_syncs(tmp_path: Path, sync_gate: Gate) -> None:
    async def work() -> None:
        async with MessageStore.open_async(tmp_path, small(flush_disk_type=SYNC)) as store:
            await store.aput("orders", b"first", queue_id=0)
            before = sync_gate.calls
            results = await asyncio.gather(*(store.aput("orders", b"%d" % n, queue_id=0) for n in range(64)))
            assert sync_gate.calls - before <= 16, "each put for itself would be 64"
            assert [result.queue_offset for result in results] == list(range(1, 65))
            assert store.flushed_where() == store.physical_bounds()[1]

    _run(work())
    assert [row["body"] for row in rows(tmp_path)] == [b"first", *(b"%d" % number for number in range(64))]


def test_the_event_loop_runs_while_a_put_waits_for_the_device(tmp_path: Path, sync_gate: Gate) -> None:
    async def work() -> None:
        async with open_store(tmp_path, flush_disk_type=SYNC) as store:
            sync_gate.shut()
            put = asyncio.ensure_future(store.aput("orders", b"x"))
            while not sync_gate.reached.is_set():
                await asyncio.sleep(0)
            assert not put.done()
            sync_gate.open()
            assert (await put).ok

    _run(work())


def test_tasks_have_turns_while_one_puts(tmp_path: Path) -> None:
    """A put of a store with ASYNC_FLUSH is a copy into memory, which the loop's own thread makes at once."""

    async def work() -> None:
        async with open_store(tmp_path) as store:
            await store.aput("orders", b"first", queue_id=0)
            turns: list[int] = []

            async def count() -> None:
                while True:
                    turns.append(1)
                    await asyncio.sleep(0)

            counting = asyncio.ensure_future(count())
            for number in range(100):
                assert (await store.aput("orders", b"x", queue_id=0)).queue_offset == number + 1
            assert len(turns) >= 100
            counting.cancel()

    _run(work())


def test_the_event_loop_runs_while_another_thread_has_the_put_lock(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_store(tmp_path) as store:
            await store.aput("orders", b"first", queue_id=0)
            with parts_of(store).engine.log.writer.lock:
                puts = [asyncio.ensure_future(store.aput("orders", b"%d" % n, queue_id=0)) for n in range(3)]
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not any(put.done() for put in puts)
            assert [(await put).queue_offset for put in puts] == [1, 2, 3], "in the order in which they were given"

    _run(work())


def test_queues_take_turns_whatever_thread_puts(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_store(tmp_path) as store:
            results = [await store.aput("orders", b"x") for _ in range(12)]
            assert [result.queue_id for result in results] == [0, 1, 2, 3] * 3

    _run(work())


def test_a_refused_put_raises_for_its_own_task_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_store(tmp_path, max_message_size=10) as store:
            found = await asyncio.gather(
                store.aput("orders", b"x", queue_id=0),
                store.aput("orders", bytes(11)),
                store.aput("orders", "text"),  # type: ignore[arg-type]
                store.aput("orders", b"y", queue_id=0),
                return_exceptions=True,
            )
            assert [type(one).__name__ for one in found] == [
                "PutMessageResult", "PutRefused", "InvalidValue", "PutMessageResult",
            ]  # fmt: skip
            with pytest.raises(InvalidValue, match="delay is one of"):
                await store.aput("orders", b"x", delay="soon")
            with pytest.raises(PutRefused, match="11 bytes"):
                await store.aput("orders", bytes(11))
            assert [row["body"] for row in rows(store)] == [b"x", b"y"]

    _run(work())


def test_a_failed_sync_is_the_error_of_every_task_that_waited(tmp_path: Path, sync_gate: Gate) -> None:
    async def work() -> None:
        async with open_store(tmp_path, flush_disk_type=SYNC) as store:
            sync_gate.fail()
            puts = (store.aput("orders", b"x") for _ in range(5))
            found = await asyncio.gather(*puts, return_exceptions=True)
            assert any(isinstance(one, PutNotConfirmed) for one in found)
            assert all(isinstance(one, PutNotConfirmed | PutRefused) for one in found)
            assert store.stats().put_message_failed_times == 5

    _run(work())


def test_a_cancelled_put_is_appended_or_not_and_the_store_works_on(tmp_path: Path, sync_gate: Gate) -> None:
    async def work() -> None:
        async with open_store(tmp_path, flush_disk_type=SYNC) as store:
            sync_gate.shut()
            begun = asyncio.ensure_future(store.aput("orders", b"begun", queue_id=0))
            while not sync_gate.reached.is_set():
                await asyncio.sleep(0)
            waiting = asyncio.ensure_future(store.aput("orders", b"waiting", queue_id=0))
            await asyncio.sleep(0)
            for task in (begun, waiting):
                task.cancel()
            await asyncio.gather(begun, waiting, return_exceptions=True)
            assert begun.cancelled()
            assert waiting.cancelled()
            sync_gate.open()
            assert (await store.aput("orders", b"next", queue_id=0)).ok
            assert [row["body"] for row in rows(store)] == [b"begun", b"next"]

    _run(work())


def test_tables_are_put_in_another_thread(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_store(tmp_path) as store:
            result = await store.aput_messages([{"body": b"x"}] * 3, topic="orders")
            assert result.raise_for_status().message_num == 3

    _run(work())


def test_tasks_of_a_round_that_fails_raise_errors_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise MemoryError("injected")

    async def work() -> None:
        async with open_store(tmp_path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(parts_of(store).engine.putter, "put_together", fail)
                puts = (store.aput("orders", b"x") for _ in range(5))
                found = await asyncio.gather(*puts, return_exceptions=True)
            assert all(isinstance(one, PutNotConfirmed) and "injected" in str(one) for one in found)
            assert len({id(one) for one in found}) == 5
            assert (await store.aput("orders", b"x")).ok

    _run(work())
    assert "A round of" in caplog.text


def test_a_closed_store_refuses_tasks(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_store(tmp_path) as store:
            pass
        with pytest.raises(StoreClosed):
            await store.aput("orders", b"x")

    _run(work())


def test_a_put_that_waits_when_the_store_closes_gets_an_answer(tmp_path: Path) -> None:
    async def work() -> None:
        store = open_store(tmp_path)
        puts = [asyncio.ensure_future(store.aput("orders", b"x", queue_id=0)) for _ in range(200)]
        await asyncio.sleep(0)
        await asyncio.to_thread(store.close)
        found = await asyncio.gather(*puts, return_exceptions=True)
        stored = [one for one in found if not isinstance(one, BaseException)]
        assert all(isinstance(one, StoreClosed | PutRefused) for one in found if isinstance(one, BaseException))
        with MessageStore.open(tmp_path, small()) as again:
            assert again.put("orders", b"after", queue_id=0).queue_offset == len(stored)

    _run(work())


def test_a_store_whose_opening_is_cancelled_does_not_stay_open(tmp_path: Path) -> None:
    async def work() -> None:
        async def use() -> None:
            async with MessageStore.open_async(tmp_path, small()):
                await asyncio.sleep(WAIT_LIMIT_S)

        task = asyncio.ensure_future(use())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with MessageStore.open_async(tmp_path, small(), lock_timeout_s=WAIT_LIMIT_S) as store:
            assert (await store.aput("orders", b"x")).ok

    _run(work())


def test_a_store_whose_opening_is_cancelled_at_the_end_of_the_loop_is_closed(tmp_path: Path) -> None:
    async def use() -> None:
        async with MessageStore.open_async(tmp_path, small(), lock_timeout_s=WAIT_LIMIT_S):
            pytest.fail("the opening was cancelled")

    async def work(owner: MessageStore) -> None:
        task = asyncio.ensure_future(use())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        owner.close()

    # A store that is dropped without a close warns, which is an error here.
    _run(work(MessageStore.open(tmp_path, small())))
    gc.collect()
    MessageStore.open(tmp_path, small(), lock_timeout_s=WAIT_LIMIT_S).close()


def test_an_opening_that_fails_raises_its_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_store(tmp_path):
            with pytest.raises(StoreLocked):
                async with MessageStore.open_async(tmp_path, small()):
                    pytest.fail("it is open already")

    _run(work())
