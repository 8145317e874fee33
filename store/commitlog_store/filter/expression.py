"""Trees of SQL92 expressions, and their evaluation over columns: RocketMQ's three-valued logic and its conversions.

Properties are text, so each node's type is known without any message: text, number, boolean, or NULL at all times. A
node is evaluated for all rows at once. What a boolean one gives is three masks, ``Truth``; conversions that fail for a
row are in the mask ``failed``, and spread as an exception does in RocketMQ: up to the root, unless the logic above did
not look at that side.

=================  ==========================================================================================
operands           comparison
=================  ==========================================================================================
text, number       the text as a number of the literal's own type; fails when it is none
text, text         ``=``: equal texts; ``<`` and others: both as doubles
text, boolean      the text as a boolean: true when it is "true" in any case. Boolean, text: fails
number, number     as the wider of both types
boolean, number    never equal
=================  ==========================================================================================

Source: RocketMQ ``filter/expression/ComparisonExpression.java``, ``LogicExpression.java``, ``UnaryExpression.java``.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from commitlog_store.filter.java_values import JavaType, double_order_key, order_keys
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray


class Rows(Protocol):
    """The properties of messages, one row a message."""

    def __len__(self) -> int: ...

    def text(self, name: str) -> pa.StringArray:
        """The values of one property, null where a row has none."""


@dataclass(frozen=True, slots=True)
class Property:
    """The text of a property, NULL for a message without it."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number of one of Java's types. ``literal``: as it was written, and not made by a minus."""

    value: int | float
    type: JavaType
    literal: bool = True

    def negated(self) -> Number:
        return Number(-self.value, self.type, literal=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal text, TRUE, FALSE or NULL."""

    value: str | bool | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The minus of what is not a number: NULL. Its operand may fail."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Cast:
    """A property where a condition is expected: text is not TRUE, so FALSE, or NULL without the property."""

    operand: Property


class Written(enum.Enum):
    """How a negation was written."""

    WITHIN = "within another operator, such as <>"
    BARE = "NOT, without parentheses around it"
    GROUPED = "NOT, in parentheses"


@dataclass(frozen=True, slots=True)
class Not:
    """``written`` is for the warnings of ``filter/doubts.py``, and changes no result."""

    operand: BooleanNode
    written: Written = field(default=Written.WITHIN, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[BooleanNode, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[BooleanNode, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression


@dataclass(frozen=True, slots=True)
class Compare:
    """``symbol`` is one of ``COMPARISONS``. No operand is a boolean or a literal text."""

    symbol: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class In:
    operand: Property
    values: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """``word`` is CONTAINS, STARTSWITH or ENDSWITH. Never NULL: a message without the text does not match."""

    word: str
    operand: Expression
    text: str
    negated: bool


# A Constant among these is TRUE, FALSE or NULL.
BooleanNode = Constant | Cast | Not | And | Or | Equal | IsNull | Compare | In | Search
Expression = BooleanNode | Property | Number | Nothing

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# The functions of Arrow.
_SEARCHES = {"CONTAINS": "match_substring", "STARTSWITH": "starts_with", "ENDSWITH": "ends_with"}


class Truth(NamedTuple):
    """The values of a condition, one a row: true, NULL or failed where the mask is set, FALSE where none is."""

    true: BoolArray
    null: BoolArray
    failed: BoolArray

    @property
    def false(self) -> BoolArray:
        return ~(self.true | self.null | self.failed)


class _Texts(NamedTuple):
    """Texts of every row, or one literal text."""

    values: pa.StringArray | str
    null: BoolArray


class _Absent(NamedTuple):
    """NULL in every row, but for those in which the evaluation has failed."""

    failed: BoolArray


# The values of an operand.
_Values = _Texts | Number | Truth | _Absent


def operands(node: Expression) -> tuple[Expression, ...]:
    """The nodes below a node."""
    if isinstance(node, And | Or):
        return node.parts
    if isinstance(node, Equal | Compare):
        return node.left, node.right
    if isinstance(node, Not | Nothing | Cast | IsNull | In | Search):
        return (node.operand,)
    return ()


def property_names(node: Expression) -> Iterator[str]:
    """The properties that an expression looks at."""
    if isinstance(node, Property):
        yield node.name
    for below in operands(node):
        yield from property_names(below)


def implied_values(node: Expression, name: str) -> frozenset[str] | None:
    """The values one of which a property has in every message that matches; None if any value may match."""
    match node:
        case Equal(Property(found), Constant(str(value))) | Equal(Constant(str(value)), Property(found)) if (
            found == name
        ):
            return frozenset({value})
        case In(Property(found), listed, False) if found == name:
            return frozenset(listed)
        case And(parts) | Or(parts):
            known = [values for part in parts if (values := implied_values(part, name)) is not None]
            if isinstance(node, And):
                return frozenset.intersection(*known) if known else None
            return frozenset.union(*known) if len(known) == len(parts) else None
    return None


def evaluate(node: BooleanNode, rows: Rows) -> Truth:
    """The values of a condition for all rows."""
    return _EVALUATIONS[type(node)](node, rows)


def _none(rows: Rows) -> BoolArray:
    return np.zeros(len(rows), np.bool_)


def _constant(node: Constant, rows: Rows) -> Truth:
    mask = np.ones(len(rows), np.bool_)
    none = _none(rows)
    return Truth(mask if node.value is True else none, mask if node.value is None else none, none)


def _cast(node: Cast, rows: Rows) -> Truth:
    none = _none(rows)
    return Truth(none, _nulls(rows.text(node.operand.name)), none)


def _not(node: Not, rows: Rows) -> Truth:
    truth = evaluate(node.operand, rows)
    return Truth(truth.false, truth.null, truth.failed)


def _logic(node: And | Or, rows: Rows) -> Truth:
    """AND and OR of several parts, one after the other: the first FALSE (TRUE) decides, the rest is not looked at."""
    first, *others = node.parts
    so_far = evaluate(first, rows)
    is_and = isinstance(node, And)
    for part in others:
        truth = evaluate(part, rows)
        decided = so_far.false if is_and else so_far.true
        settled = decided | so_far.failed
        failed = so_far.failed | (truth.failed & ~settled)
        decided |= (truth.false if is_and else truth.true) & ~settled
        null = (so_far.null | truth.null) & ~(decided | failed)
        so_far = Truth(~(decided | null | failed) if is_and else decided, null, failed)
    return so_far


def _is_null(node: IsNull, rows: Rows) -> Truth:
    values = _values(node.operand, rows)
    failed = _failed(values, rows)
    return Truth(_null(values, rows) & ~failed, _none(rows), failed)


def _in(node: In, rows: Rows) -> Truth:
    texts = rows.text(node.operand.name)
    null = _nulls(texts)
    found = _mask(pc.is_in(texts, value_set=pa.array(node.values, pa.string())))
    return Truth(~(found | null) if node.negated else found & ~null, null, _none(rows))


def _search(node: Search, rows: Rows) -> Truth:
    none = _none(rows)
    if not node.text:
        return Truth(none, none, none)
    values = _values(node.operand, rows)
    if not isinstance(values, _Texts):
        return Truth(none, none, _failed(values, rows))
    found = _mask(getattr(pc, _SEARCHES[node.word])(_array(values, rows), node.text))
    return Truth(~(found | values.null) if node.negated else found & ~values.null, none, none)


def _compare(node: Compare, rows: Rows) -> Truth:
    left, right = _values(node.left, rows), _values(node.right, rows)
    failed = _failed(left, rows)
    null = _null(left, rows) & ~failed
    # The right side is looked at only where the left one has a value.
    failed = failed | (_failed(right, rows) & ~null)
    null |= _null(right, rows) & ~failed
    ordered, bad = _ordered(COMPARISONS[node.symbol], left, right, rows)
    open_rows = ~(failed | null)
    return Truth(ordered & ~bad & open_rows, null, failed | (bad & open_rows))


def _equal(node: Equal, rows: Rows) -> Truth:
    left, right = _values(node.left, rows), _values(node.right, rows)
    failed = _failed(left, rows) | _failed(right, rows)
    left_null, right_null = _null(left, rows), _null(right, rows)
    same, bad = _same(left, right, rows)
    open_rows = ~(failed | left_null | right_null)
    true = ((left_null & right_null) | (same & ~bad & open_rows)) & ~failed
    # NULL on the left alone is NULL, on the right alone FALSE.
    return Truth(true, left_null & ~right_null & ~failed, failed | (bad & open_rows))


_EVALUATIONS: dict[type, Callable[[Any, Rows], Truth]] = {
    Constant: _constant,
    Cast: _cast,
    Not: _not,
    And: _logic,
    Or: _logic,
    Equal: _equal,
    IsNull: _is_null,
    Compare: _compare,
    In: _in,
    Search: _search,
}


def _values(node: Expression, rows: Rows) -> _Values:
    if isinstance(node, Property):
        texts = rows.text(node.name)
        return _Texts(texts, _nulls(texts))
    if isinstance(node, Number):
        return node
    if isinstance(node, Constant) and isinstance(node.value, str):
        return _Texts(node.value, _none(rows))
    if isinstance(node, Nothing):
        return _Absent(_failed(_values(node.operand, rows), rows))
    return evaluate(node, rows)


def _failed(values: _Values, rows: Rows) -> BoolArray:
    return values.failed if isinstance(values, Truth | _Absent) else _none(rows)


def _null(values: _Values, rows: Rows) -> BoolArray:
    if isinstance(values, _Absent):
        return ~values.failed
    return _none(rows) if isinstance(values, Number) else values.null


def _same(left: _Values, right: _Values, rows: Rows) -> tuple[BoolArray, BoolArray]:
    """Where two operands are equal, and where that fails, in rows in which both have a value."""
    none = _none(rows)
    if isinstance(left, _Absent) or isinstance(right, _Absent):
        return none, none
    if isinstance(left, _Texts) and isinstance(right, _Texts):
        values = right.values if isinstance(left.values, str) else left.values
        other = left.values if isinstance(left.values, str) else right.values
        if isinstance(values, str):
            return np.full(len(rows), values == other), none
        return _mask(pc.equal(values, other)), none
    if isinstance(left, _Texts) and isinstance(right, Truth):
        is_true = _mask(pc.equal(pc.ascii_lower(_array(left, rows)), "true"))
        return is_true == right.true, none
    if isinstance(left, Truth) and isinstance(right, _Texts):
        return none, ~none  # RocketMQ takes the boolean for a text, and fails
    if isinstance(left, Truth) and isinstance(right, Truth):
        return left.true == right.true, none
    if isinstance(left, Truth) or isinstance(right, Truth):
        return none, none
    return _ordered(operator.eq, left, right, rows)


def _ordered(
    compare: Callable[[Any, Any], Any], left: _Values, right: _Values, rows: Rows
) -> tuple[BoolArray, BoolArray]:
    """Where two operands compare so as numbers, and where one is not a number."""
    kind = _common_type(left, right)
    low, low_bad = _order_keys(left, kind, rows)
    high, high_bad = _order_keys(right, kind, rows)
    return np.broadcast_to(np.asarray(compare(low, high), np.bool_), len(rows)), low_bad | high_bad


def _common_type(left: _Values, right: _Values) -> JavaType:
    """The type in which two operands are compared: a text takes the number's."""
    types = {values.type for values in (left, right) if isinstance(values, Number)}
    for kind in (JavaType.DOUBLE, JavaType.LONG, JavaType.INT):
        if kind in types:
            return kind
    return JavaType.DOUBLE


def _order_keys(values: _Values, kind: JavaType, rows: Rows) -> tuple[Any, BoolArray]:
    if isinstance(values, Number):
        key = double_order_key(float(values.value)) if kind is JavaType.DOUBLE else int(values.value)
        return np.int64(key), _none(rows)
    if isinstance(values, _Texts):
        return order_keys(_array(values, rows), kind)
    return np.int64(0), _none(rows)  # NULL in every row


def _array(values: _Texts, rows: Rows) -> pa.StringArray:
    if isinstance(values.values, str):
        return pa.repeat(pa.scalar(values.values, pa.string()), len(rows))
    return values.values


def _nulls(texts: pa.StringArray) -> BoolArray:
    if not texts.null_count:
        return np.zeros(len(texts), np.bool_)
    mask: BoolArray = texts.is_null().to_numpy(zero_copy_only=False)
    return mask


def _mask(values: pa.BooleanArray) -> BoolArray:
    """An Arrow mask as numpy has it; null is False."""
    if values.null_count:
        values = values.fill_null(False)
    mask: BoolArray = values.to_numpy(zero_copy_only=False)
    return mask
