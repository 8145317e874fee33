"""Which files go: a model over arbitrary logs, limits and holders, with the time as an input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.engine.subject import Hold
from commitlog_store.retention.decision import Decision, LogFile, Reason, RetentionLimits, decide

SIZE = 100
times = st.integers(0, 1_000)


@st.composite
def logs(draw: st.DrawFn) -> list[LogFile]:
    """Files one after another; messages get newer, but a clock that jumped may also leave older ones after newer."""
    first = draw(st.integers(0, 5)) * SIZE
    newest = draw(st.lists(st.one_of(st.none(), times), max_size=8))
    return [
        LogFile(base=first + i * SIZE, end=first + (i + 1) * SIZE, path=f"{i}", newest_ms=at)
        for i, at in enumerate(newest)
    ]


limits = st.builds(
    RetentionLimits,
    older_than_ms=st.one_of(st.none(), times),
    max_bytes=st.one_of(st.none(), st.integers(0, 1_500)),
    at_once=st.booleans(),
)
holds = st.lists(
    st.builds(
        Hold, from_offset=st.integers(0, 1_500), holder=st.sampled_from("abc"), at_most_ms=st.one_of(st.none(), times)
    ),
    max_size=3,
)


@given(logs(), limits, holds, times, st.one_of(st.none(), st.integers(0, 4)))
def test_files_go_from_the_oldest_on_and_what_is_held_stays(
    files: list[LogFile], limits: RetentionLimits, holds: list[Hold], now: int, most: int | None
) -> None:
    end = files[-1].end if files else 0
    decision = decide(files, end, limits, holds, now, most=most)
    gone = [one.file for one in decision.doomed]

    assert gone == files[: len(gone)], "a hole"
    assert len(gone) < max(len(files), 1), "the last file is gone"
    assert most is None or len(gone) <= most
    for one in decision.doomed:
        needing = [hold for hold in holds if hold.from_offset < one.file.end]
        assert all(hold.at_most_ms is not None and _older(one.file, hold.at_most_ms, now) for hold in needing)
        assert one.overruled == tuple(hold.holder for hold in needing)
        assert _is_due(one.file, end, limits, now)
    _check_the_next(decision, files, end, limits, now, most)


def _check_the_next(
    decision: Decision, files: list[LogFile], end: int, limits: RetentionLimits, now: int, most: int | None
) -> None:
    """The first file that stays is the last one, too many, not due, or held."""
    left = files[len(decision.doomed) :]
    if decision.held is not None:
        assert decision.holders
        assert decision.held == left[0]
    elif len(left) > 1 and len(decision.doomed) != most:
        assert not _is_due(left[0], end, limits, now)


def _older(file: LogFile, age: int | None, now: int) -> bool:
    return age is not None and file.newest_ms is not None and now - file.newest_ms >= age


def _is_due(file: LogFile, end: int, limits: RetentionLimits, now: int) -> bool:
    too_many = limits.max_bytes is not None and end - file.base > limits.max_bytes
    return _older(file, limits.older_than_ms, now) or too_many or limits.at_once


def _files(*newest: int | None) -> list[LogFile]:
    return [
        LogFile(base=i * SIZE, end=(i + 1) * SIZE, path=f"{i}", newest_ms=newest_ms)
        for i, newest_ms in enumerate(newest)
    ]


def test_a_file_goes_when_its_newest_message_has_the_age() -> None:
    decision = decide(_files(10, 20, 30, None), 350, RetentionLimits(older_than_ms=80), [], 100)
    assert [(one.file.path, one.reason) for one in decision.doomed] == [("0", Reason.AGE), ("1", Reason.AGE)]


def test_a_limit_of_bytes_leaves_at_most_so_many() -> None:
    decision = decide(_files(10, 20, 30, None), 350, RetentionLimits(max_bytes=200), [], 100)
    assert [one.reason for one in decision.doomed] == [Reason.BYTES, Reason.BYTES]


def test_a_young_file_before_an_old_one_keeps_both() -> None:
    assert not decide(_files(90, 10, None), 300, RetentionLimits(older_than_ms=50), [], 100).doomed


def test_a_holder_keeps_the_file_that_it_still_reads_and_is_named() -> None:
    hold = Hold(from_offset=150, holder="billing")
    decision = decide(_files(1, 2, 3, None), 400, RetentionLimits(older_than_ms=0), [hold], 100)
    assert [one.file.path for one in decision.doomed] == ["0"]
    assert decision.held is not None
    assert decision.held.path == "1"
    assert decision.holders == ("billing",)


def test_a_holder_is_overruled_when_it_has_held_long_enough_and_is_reported() -> None:
    hold = Hold(from_offset=0, holder="billing", at_most_ms=50)
    decision = decide(_files(10, 60, None), 300, RetentionLimits(older_than_ms=0), [hold], 100)
    assert [one.overruled for one in decision.doomed] == [("billing",)]
    assert decision.holders == ("billing",)
