"""The comparison at a campaign's end sees each kind of wrong end: one that sees nothing would prove nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.base import HALVES, LATER, PLAIN, WHOLE
from tests.soak.comparison import Stored, fate
from tests.soak.journal import Line

AT = Stored(PLAIN, 1, 5, 900, 2_000)
PUT: Line = {"n": 1, "topic": PLAIN}
TABLE: Line = {"n": 1, "topic": PLAIN, "rows": 2}
BATCH: Line = {"n": 1, "topic": WHOLE, "rows": 2}
COMMIT: Line = {"n": 1, "topic": HALVES, "outcome": "commit"}
ROLLBACK: Line = {"n": 1, "topic": HALVES, "outcome": "rollback"}
DELAYED: Line = {"n": 1, "topic": LATER, "t": 1_000, "delay": 1_000}
WHOLE_AT, HALF_AT, LATER_AT = replace(AT, topic=WHOLE), replace(AT, topic=HALVES), replace(AT, topic=LATER)


@pytest.mark.parametrize(
    ("intent", "answer", "found"),
    [
        (PUT, {"places": [[1, 5, 900]]}, [[AT]]),
        (PUT, {"unknown": ""}, [[]]),
        (PUT, {}, [[AT]]),
        (PUT, {"refused": ""}, [[]]),
        (TABLE, {"table": [[1, 5, 900], "UNKNOWN_ERROR"]}, [[AT], [AT]]),
        (BATCH, {"committed": True}, [[WHOLE_AT], [WHOLE_AT]]),
        (BATCH, {"again": ""}, [[], []]),
        (COMMIT, {"ended": "commit"}, [[HALF_AT]]),
        (ROLLBACK, {"ended": "rollback"}, [[]]),
        (DELAYED, {"places": [[0, 1, 2]]}, [[LATER_AT]]),
    ],
)
def test_what_may_be_is_no_fault(intent: Line, answer: Line, found: list[list[Stored]]) -> None:
    assert not list(fate(intent, [answer], found))


@pytest.mark.parametrize(
    ("intent", "answer", "found"),
    [
        (PUT, {"places": [[1, 5, 900]]}, [[]]),
        (PUT, {"places": [[1, 4, 900]]}, [[AT]]),
        (PUT, {}, [[AT, AT]]),
        (PUT, {}, [[WHOLE_AT]]),
        (PUT, {"refused": ""}, [[AT]]),
        (TABLE, {"table": [[1, 5, 900], "MESSAGE_ILLEGAL"]}, [[AT], [AT]]),
        (TABLE, {"table": [[1, 5, 900], "UNKNOWN_ERROR"]}, [[], []]),
        (BATCH, {"committed": True}, [[], []]),
        (BATCH, {}, [[WHOLE_AT], []]),
        (COMMIT, {"ended": "commit"}, [[]]),
        (ROLLBACK, {}, [[HALF_AT]]),
        (COMMIT, {"wrong": ""}, [[HALF_AT]]),
        (DELAYED, {"places": [[0, 1, 2]]}, [[]]),
        (DELAYED, {}, [[replace(LATER_AT, store_timestamp=1_999)]]),
    ],
)
def test_what_may_not_be_is_found(intent: Line, answer: Line, found: list[list[Stored]]) -> None:
    assert list(fate(intent, [answer], found))
