"""Both programs look at a store that one of them wrote, and must agree about it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from commitlog_store import MessageStore
from tests.interop.comparison import Answers, answers_of, assert_reads_alike
from tests.interop.message_store_program import open_store
from tests.interop.rocketmq import RocketMq, complaints, message_store_settings
from tests.support.clean_store import assert_clean


def agree_on_closed(path: Path, rocketmq: RocketMq, settings: Mapping[str, object]) -> Answers:
    """RocketMQ opens a closed store (a copy of it) without a complaint, and reads what ``StoreReader`` reads."""
    assert not (path / "abort").exists()
    with rocketmq.open(_copy(path, "rocketmq"), settings) as process:
        answers = answers_of(process)
        assert not complaints(process.logged())
    assert_reads_alike(answers, path, rocketmq)
    assert_clean(path)
    return answers


def agree_on_crashed(path: Path, rocketmq: RocketMq, settings: Mapping[str, object]) -> Answers:
    """RocketMQ and MessageStore, each on a copy, find the same end of the log and the same queues."""
    assert (path / "abort").exists()
    assert_clean(path, killed=True)  # a writer killed within a copy of a large record leaves a part of it
    theirs, ours = _copy(path, "rocketmq"), _copy(path, "python")
    with rocketmq.open(theirs, settings) as process:
        answers = answers_of(process)
        process.close()
    store: MessageStore = open_store(str(ours), message_store_settings(settings))
    assert store.recovered is not None
    store.close()
    assert_reads_alike(answers, theirs, rocketmq)
    assert_clean(theirs)
    assert_reads_alike(answers, ours, rocketmq, index_recovered_by_rocketmq=True)
    assert_clean(ours)
    return answers


def _copy(path: Path, whose: str) -> Path:
    copy = path.with_name(f"{path.name}-{whose}")
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(path, copy))
