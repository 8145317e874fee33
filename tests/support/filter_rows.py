"""Messages as the columns that a filter looks at, and what it says of them in RocketMQ's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from commitlog_store.filter.expression import BooleanNode, evaluate


class FilterRows:
    """Properties of messages, one mapping a row."""

    def __init__(self, messages: Sequence[Mapping[str, str]]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def text(self, name: str) -> pa.StringArray:
        return pa.array([message.get(name) for message in self._messages], pa.string())


def evaluated(node: BooleanNode, messages: Sequence[Mapping[str, str]]) -> list[str]:
    """TRUE, FALSE, NULL or failed for each message, evaluated over columns."""
    truth = evaluate(node, FilterRows(messages))
    values = zip(truth.true.tolist(), truth.null.tolist(), truth.failed.tolist(), strict=True)
    return ["TRUE" if true else "NULL" if null else "failed" if failed else "FALSE" for true, null, failed in values]
