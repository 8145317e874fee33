"""RocketMQ's evaluation of SQL92 filters, message by message: what the columnar evaluation is compared with.

It shares the parser with the package and nothing of its evaluation: values are Python's, and an exception of Java's is
one here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from commitlog_store.filter import expression as tree
from commitlog_store.filter.java_values import JavaType

Properties = Mapping[str, str]

_RANGES = {JavaType.INT: 2**31, JavaType.LONG: 2**63}


class EvaluationFailed(Exception):
    """An exception of Java's."""


def result_of(node: tree.Expression, properties: Properties) -> str:
    """TRUE, FALSE, NULL or failed."""
    try:
        value = _value(node, properties)
    except EvaluationFailed:
        return "failed"
    return {True: "TRUE", False: "FALSE", None: "NULL"}[value]


@singledispatch
def _value(node: object, properties: Properties) -> Any:
    raise NotImplementedError(type(node))


@_value.register
def _(node: tree.Property, properties: Properties) -> Any:
    return properties.get(node.name)


@_value.register
def _(node: tree.Number, properties: Properties) -> Any:
    return node


@_value.register
def _(node: tree.Constant, properties: Properties) -> Any:
    return node.value


@_value.register
def _(node: tree.Nothing, properties: Properties) -> Any:
    _value(node.operand, properties)


@_value.register
def _(node: tree.Cast, properties: Properties) -> Any:
    return None if _value(node.operand, properties) is None else False


@_value.register
def _(node: tree.Not, properties: Properties) -> Any:
    value = _value(node.operand, properties)
    return None if value is None else not value


@_value.register
def _(node: tree.And, properties: Properties) -> Any:
    return _logic(node.parts, properties, deciding=False)


@_value.register
def _(node: tree.Or, properties: Properties) -> Any:
    return _logic(node.parts, properties, deciding=True)


def _logic(parts: tuple[tree.BooleanNode, ...], properties: Properties, *, deciding: bool) -> Any:
    result: Any = not deciding
    for part in parts:
        value = _value(part, properties)
        if value is deciding:
            return deciding
        if value is None:
            result = None
    return result


@_value.register
def _(node: tree.IsNull, properties: Properties) -> Any:
    return _value(node.operand, properties) is None


@_value.register
def _(node: tree.Equal, properties: Properties) -> Any:
    left, right = _value(node.left, properties), _value(node.right, properties)
    if left is None and right is not None:
        return None
    if left is not None and right is None:
        return False
    if left is None or (type(left) is type(right) and not isinstance(left, tree.Number) and left == right):
        return True
    if isinstance(left, str) and isinstance(right, str):
        return False
    return _compared(left, right) == 0


@_value.register
def _(node: tree.Compare, properties: Properties) -> Any:
    left = _value(node.left, properties)
    if left is None:
        return None
    right = _value(node.right, properties)
    if right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        answer = _order(_number(left, JavaType.DOUBLE), _number(right, JavaType.DOUBLE))
    else:
        answer = _compared(left, right)
    return {">": answer > 0, ">=": answer >= 0, "<": answer < 0, "<=": answer <= 0}[node.symbol]


@_value.register
def _(node: tree.In, properties: Properties) -> Any:
    value = _value(node.operand, properties)
    return None if value is None else (value in node.values) is not node.negated


@_value.register
def _(node: tree.Search, properties: Properties) -> Any:
    if not node.text:
        return False
    value = _value(node.operand, properties)
    if not isinstance(value, str):
        return False
    found = {"CONTAINS": node.text in value, "STARTSWITH": value.startswith(node.text)}
    return found.get(node.word, value.endswith(node.text)) is not node.negated


def _compared(left: Any, right: Any) -> int:
    """Java's ``compareTo`` after RocketMQ's conversions."""
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationFailed("a Boolean is no String")
        return (left > right) - (left < right) if isinstance(right, bool) else -1
    if isinstance(right, bool):
        if not isinstance(left, str):
            return -1
        truth = left.upper() == "TRUE"
        return (truth > right) - (truth < right)
    if isinstance(left, tree.Number) and isinstance(right, tree.Number):
        wide = JavaType.DOUBLE in (left.type, right.type)
        return _order(float(left.value), float(right.value)) if wide else _order(left.value, right.value)
    if isinstance(left, tree.Number):
        return _order(left.value, _number(right, left.type))
    assert isinstance(right, tree.Number)
    return _order(_number(left, right.type), right.value)


def _order(left: float, right: float) -> int:
    """``compareTo``: NaN is the greatest, -0.0 less than 0.0."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == right == 0:
        left, right = math.copysign(1, left), math.copysign(1, right)
    return (left > right) - (left < right)


def _number(text: str, kind: JavaType) -> float:
    if kind is not JavaType.DOUBLE:
        if not re.fullmatch(r"[+-]?\d+", text) or any(ord(character) > 0xFFFF for character in text):
            raise EvaluationFailed(text)
        value = int(text)
        if not -_RANGES[kind] <= value < _RANGES[kind]:
            raise EvaluationFailed(text)
        return value
    trimmed = text.strip("".join(map(chr, range(33))))
    if re.fullmatch(r"[+-]?(NaN|Infinity)", trimmed):
        return float(trimmed)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", trimmed, re.ASCII):
        return float(trimmed.rstrip("fFdD"))
    if re.fullmatch(r"[+-]?0[xX]([\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)[pP][+-]?\d+[fFdD]?", trimmed, re.ASCII):
        return float.fromhex(re.sub("[fFdD]$", "", trimmed))
    raise EvaluationFailed(text)
