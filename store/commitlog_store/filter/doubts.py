"""Doubtful filters: what RocketMQ reads in another way than most readers of SQL do.

In SQL, ``NOT x = 1`` is ``NOT (x = 1)``. In RocketMQ's grammar NOT binds before every comparison, so it is
``(NOT x) = 1``, which matches no message. And every name is that of a property: ``queueId = 1`` matches no message
either, unless a producer gave it a property ``queueId``. In a subscription to tags, ``A,B`` is one tag. Both are
evaluated as RocketMQ does; a warning names both readings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.filter.expression import (
    Cast,
    Constant,
    Equal,
    Expression,
    IsNull,
    Not,
    Number,
    Property,
    Search,
    Written,
    operands,
    property_names,
)
from commitlog_store.format.properties import KEYS, TAGS

_PROPERTY_OF_COLUMN = {"tags": TAGS, "keys": KEYS}


def doubts(node: Expression) -> Iterator[str]:
    """A sentence for each comparison of a bare NOT, with both readings, and for each name that a column has too."""
    yield from _bare_nots(node)
    for name in dict.fromkeys(property_names(node)):
        if name in ALL_COLUMNS:
            meant = _PROPERTY_OF_COLUMN.get(name)
            way = f"write {meant} for it" if meant else "compare it in the rows that are read, in Spark with .where"
            yield f"{name} is read as the property of that name. If the column is meant, {way}."


def tag_doubts(tags: Sequence[str]) -> Iterator[str]:
    """A sentence for each tag that looks like several: RocketMQ separates tags by ``||`` alone."""
    for tag in tags:
        parts = [part.strip() for part in re.split(r"[,|]", tag) if part.strip()]
        if len(parts) > 1:
            yield f"{tag} is read as one tag. Several tags are written as {' || '.join(parts)}."


def _bare_nots(node: Expression) -> Iterator[str]:
    within = isinstance(node, Not) and node.written is Written.WITHIN
    compared = node.operand if isinstance(node, Not) and within else node
    if isinstance(compared, Equal | IsNull | Search):
        left = compared.left if isinstance(compared, Equal) else compared.operand
        if isinstance(left, Not) and left.written is Written.BARE:
            operand, rest = _shown(left.operand), _rest(compared, negated=within)
            yield (
                f"NOT {operand} {rest} is read as (NOT {operand}) {rest}, as RocketMQ does: there NOT binds before "
                f"comparisons. Write NOT ({operand} {rest}) for the other meaning, or the parentheses for this one."
            )
    for below in operands(compared):
        yield from _bare_nots(below)


def _rest(node: Equal | IsNull | Search, *, negated: bool) -> str:
    """The comparison without its left side."""
    if isinstance(node, Equal):
        return f"{'<>' if negated else '='} {_shown(node.right)}"
    if isinstance(node, IsNull):
        return "IS NOT NULL" if negated else "IS NULL"
    return f"{'NOT ' if node.negated else ''}{node.word} {_quoted(node.text)}"


def _shown(node: Expression) -> str:
    if isinstance(node, Property):
        return node.name
    if isinstance(node, Cast):
        return node.operand.name
    if isinstance(node, Number):
        return str(node.value)
    if isinstance(node, Constant):
        return _quoted(node.value) if isinstance(node.value, str) else str(node.value or "NULL").upper()
    return "..."


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
