"""SQL92 filters: RocketMQ's own parser and evaluator and this package's, on expressions and messages made at random."""

from __future__ import annotations

import random

import pytest

from commitlog_store import MessageFilter
from commitlog_store.errors import FilterError
from tests.interop.rocketmq import RocketMq
from tests.support.filter_rows import evaluated
from tests.support.sql92_cases import HAND_WRITTEN, MESSAGES, random_expression, random_messages

EXPRESSIONS_A_RUN = 3_000


@pytest.mark.parametrize("seed", range(5))
def test_expressions_mean_what_they_mean_in_rocketmq(rocketmq: RocketMq, seed: int) -> None:
    if not rocketmq.is_five:
        pytest.skip("RocketMQ 4.9 has fewer operators, and its filter is not published as a package of its own")
    source = random.Random(seed)
    expressions = [*HAND_WRITTEN, *(random_expression(source) for _ in range(EXPRESSIONS_A_RUN))]
    messages = [*MESSAGES, *random_messages(seed, 50)]
    wrong: list[str] = []
    for expression, theirs in zip(expressions, rocketmq.filter(expressions, messages), strict=True):
        try:
            node = MessageFilter.parse(filter=expression).expression
        except FilterError as error:
            # RocketMQ ignores what it cannot use after a whole expression (docs/decisions/0014-filters.md).
            if theirs is not None and "the end" not in error.expected:
                wrong.append(f"{expression!r} is refused here: {error}")
            continue
        assert node is not None
        if theirs is None:
            wrong.append(f"{expression!r} is refused by RocketMQ")
        elif (ours := evaluated(node, messages)) != theirs:
            row = next(row for row, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
            wrong.append(f"{expression!r} of {messages[row]} is {ours[row]} here, {theirs[row]} in RocketMQ")
    assert not wrong, "\n".join(wrong[:20])
