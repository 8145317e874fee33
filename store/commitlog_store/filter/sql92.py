"""Parser of RocketMQ's SQL92 filter expressions, as 5.x has them, into the trees of ``expression``.

The grammar is RocketMQ's, without its habit of ignoring all that follows the first token it cannot use: there
``a = 1 b = 2`` is ``a = 1``, here it is an error. Names of properties are case-sensitive, keywords are not::

    a > 5 AND tag IN ('x', 'y') AND (region IS NOT NULL OR NOT (price BETWEEN 1.5 AND 2))

Only this module imports lark, and only ``MessageFilter.parse`` imports this module.

Source: RocketMQ ``filter/parser/SelectorParser.jj``, and the checks in ``filter/expression/ComparisonExpression.java``,
``ConstantExpression.java``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from commitlog_store.errors import FilterError
from commitlog_store.filter.expression import (
    And,
    BooleanNode,
    Cast,
    Compare,
    Constant,
    Equal,
    Expression,
    In,
    IsNull,
    Not,
    Nothing,
    Number,
    Or,
    Property,
    Search,
    Written,
    operands,
)
from commitlog_store.filter.java_values import JavaType, double_order_key
from commitlog_store.java_numbers import MAX_LONG

# A keyword ends where a name would. Terminals whose names begin with _ are not among the parts of a rule.
_GRAMMAR = r"""
start: or_expr
or_expr: and_expr (_OR and_expr)*
and_expr: equality (_AND equality)*
?equality: comparison
    | equality _EQ comparison -> equal
    | equality _NE comparison -> not_equal
    | equality _IS NULL -> is_null
    | equality _IS _NOT NULL -> is_not_null
?comparison: unary
    | comparison (GE | LE | GT | LT) unary -> compare
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING -> search
    | comparison _NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING -> not_search
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN _LPAR STRING (_COMMA STRING)* _RPAR -> is_in
    | comparison _NOT _IN _LPAR STRING (_COMMA STRING)* _RPAR -> is_not_in
?unary: _PLUS unary
    | MINUS unary -> minus
    | _NOT unary -> negation
    | primary
?primary: STRING -> text
    | DECIMAL -> decimal
    | FLOAT -> floating
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | NAME -> name
    | _LPAR or_expr _RPAR -> group

_EQ: "="
_NE: "<>"
GE: ">="
LE: "<="
GT: ">"
LT: "<"
_PLUS: "+"
MINUS: "-"
_LPAR: "("
_RPAR: ")"
_COMMA: ","
_NOT.3: /NOT(?![a-z0-9_$])/i
_AND.3: /AND(?![a-z0-9_$])/i
_OR.3: /OR(?![a-z0-9_$])/i
_BETWEEN.3: /BETWEEN(?![a-z0-9_$])/i
_IN.3: /IN(?![a-z0-9_$])/i
TRUE.3: /TRUE(?![a-z0-9_$])/i
FALSE.3: /FALSE(?![a-z0-9_$])/i
NULL.3: /NULL(?![a-z0-9_$])/i
_IS.3: /IS(?![a-z0-9_$])/i
CONTAINS.3: /CONTAINS(?![a-z0-9_$])/i
STARTSWITH.3: /STARTSWITH(?![a-z0-9_$])/i
ENDSWITH.3: /ENDSWITH(?![a-z0-9_$])/i
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
FLOAT.2: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL.1: /0|[1-9][0-9]*[lL]?/
STRING: /'(''|[^'])*'/
LINE_COMMENT.4: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.4: /\/\*[\s\S]*?\*\//
%ignore /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

# Terminals as a user writes them, where their names are not that.
_SHOWN = {
    "_EQ": "=", "_NE": "<>", "GE": ">=", "LE": "<=", "GT": ">", "LT": "<", "_LPAR": "(", "_RPAR": ")", "_COMMA": ",",
    "_PLUS": "+", "MINUS": "-", "NAME": "a property", "STRING": "a 'text'", "$END": "the end",
}  # fmt: skip
_INSTEAD_OF = {"'": "a closing ' later in the text", '"': "texts between single quotes: 'text'", "!": "<> or NOT"}
_AN_OPERAND = "a property, a number, a 'text', TRUE, FALSE, NULL, NOT or ("
_A_NUMBER = "a number or a property: only numbers are compared so"
_A_CONDITION = "a condition (a comparison, TRUE, FALSE, NULL or a property)"
# Deeper trees are refused: evaluating one takes a few calls within each other a level.
_MOST_LEVELS = 100
_LONGEST_SHOWN = 30


class _Refused(Exception):
    """A part of an expression that cannot be so. ``parse_expression`` adds the text."""

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(expected)
        self.position = position
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class _Term:
    """A part of an expression, and where it begins in the text."""

    node: Expression
    start: int


class _Builder(Transformer[Token, Any]):
    """Makes the tree while lark parses, with RocketMQ's checks. Each method gets the parts of its rule."""

    def start(self, parts: list[_Term]) -> BooleanNode:
        return _condition(parts[0])

    def or_expr(self, parts: list[_Term]) -> _Term:
        if len(parts) == 1:
            return parts[0]
        return _Term(Or(tuple(_condition(part) for part in parts)), parts[0].start)

    def and_expr(self, parts: list[_Term]) -> _Term:
        if len(parts) == 1:
            return parts[0]
        return _Term(And(tuple(_condition(part) for part in parts)), parts[0].start)

    def equal(self, parts: list[_Term]) -> _Term:
        left, right = parts
        for part in parts:
            if part.node == Constant(None):
                _refuse(part, "a value, or IS NULL: nothing is equal to NULL")
        if (
            _is_boolean(left.node)
            and _is_literal(left.node)
            and _is_literal(right.node)
            and not _is_boolean(right.node)
        ):
            _refuse(right, "TRUE or FALSE, as on the left")
        return _Term(Equal(left.node, right.node), left.start)

    def not_equal(self, parts: list[_Term]) -> _Term:
        return _not(self.equal(parts))

    def is_null(self, parts: list[_Term]) -> _Term:
        return _Term(IsNull(parts[0].node), parts[0].start)

    def is_not_null(self, parts: list[_Term]) -> _Term:
        return _not(self.is_null(parts))

    def compare(self, parts: list[Any]) -> _Term:
        left, symbol, right = parts
        return _compared(left, str(symbol), right)

    def between(self, parts: list[_Term]) -> _Term:
        value, low, high = parts
        lower = _compared(value, ">=", low)
        upper = _compared(value, "<=", high)
        if isinstance(low.node, Number) and isinstance(high.node, Number) and low.node.literal and high.node.literal:
            key = double_order_key if JavaType.DOUBLE in (low.node.type, high.node.type) else int
            if key(low.node.value) > key(high.node.value):
                _refuse(high, f"a number of at least {low.node.value}: the range begins there")
        return _Term(And((lower.node, upper.node)), value.start)  # type: ignore[arg-type]  # both are comparisons

    def not_between(self, parts: list[_Term]) -> _Term:
        value, low, high = parts
        below, above = _compared(value, "<", low), _compared(value, ">", high)
        return _Term(Or((below.node, above.node)), value.start)  # type: ignore[arg-type]  # both are comparisons

    def is_in(self, parts: list[Any]) -> _Term:
        return _in(parts, negated=False)

    def is_not_in(self, parts: list[Any]) -> _Term:
        return _in(parts, negated=True)

    def search(self, parts: list[Any]) -> _Term:
        return _search(parts, negated=False)

    def not_search(self, parts: list[Any]) -> _Term:
        return _search(parts, negated=True)

    def minus(self, parts: list[Any]) -> _Term:
        sign, term = parts
        node = term.node
        return _Term(node.negated() if isinstance(node, Number) else Nothing(node), sign.start_pos)

    def negation(self, parts: list[_Term]) -> _Term:
        return _Term(Not(_condition(parts[0]), Written.BARE), parts[0].start)

    def group(self, parts: list[_Term]) -> _Term:
        (term,) = parts
        if isinstance(term.node, Not) and term.node.written is Written.BARE:
            return _Term(Not(term.node.operand, Written.GROUPED), term.start)
        return term

    def text(self, parts: list[Token]) -> _Term:
        return _Term(Constant(_unquoted(parts[0])), parts[0].start_pos or 0)

    def decimal(self, parts: list[Token]) -> _Term:
        (token,) = parts
        value = int(token.rstrip("lL")) if len(token) <= 20 else MAX_LONG + 1
        if value > MAX_LONG:
            raise _Refused(token.start_pos or 0, f"a number of at most {MAX_LONG}", str(token))
        kind = JavaType.INT if value < 2**31 else JavaType.LONG
        return _Term(Number(value, kind), token.start_pos or 0)

    def floating(self, parts: list[Token]) -> _Term:
        (token,) = parts
        value = float(token)
        if not 0 < value < float("inf"):
            expected = "a number above 0 and below 1.8E308 (a whole number is written without a point)"
            raise _Refused(token.start_pos or 0, expected, str(token))
        return _Term(Number(value, JavaType.DOUBLE), token.start_pos or 0)

    def true(self, parts: list[Token]) -> _Term:
        return _Term(Constant(True), parts[0].start_pos or 0)

    def false(self, parts: list[Token]) -> _Term:
        return _Term(Constant(False), parts[0].start_pos or 0)

    def null(self, parts: list[Token]) -> _Term:
        return _Term(Constant(None), parts[0].start_pos or 0)

    def name(self, parts: list[Token]) -> _Term:
        return _Term(Property(str(parts[0])), parts[0].start_pos or 0)


def _condition(term: _Term) -> BooleanNode:
    """The node as a condition: a bare property is cast to one."""
    node = term.node
    if isinstance(node, Property):
        return Cast(node)
    if isinstance(node, Number | Nothing) or (isinstance(node, Constant) and isinstance(node.value, str)):
        _refuse(term, _A_CONDITION)
    return node


def _compared(left: _Term, symbol: str, right: _Term) -> _Term:
    for term in (left, right):
        if not isinstance(term.node, Property | Number | Nothing):
            _refuse(term, _A_NUMBER)
    return _Term(Compare(symbol, left.node, right.node), left.start)


def _not(term: _Term) -> _Term:
    return _Term(Not(_condition(term)), term.start)


def _in(parts: list[Any], *, negated: bool) -> _Term:
    term, *texts = parts
    if not isinstance(term.node, Property):
        _refuse(term, "a property: only properties are looked up IN a list")
    values = tuple(dict.fromkeys(_unquoted(text) for text in texts))
    return _Term(In(term.node, values, negated), term.start)


def _search(parts: list[Any], *, negated: bool) -> _Term:
    term, word, text = parts
    return _Term(Search(word.upper(), term.node, _unquoted(text), negated), term.start)


def _unquoted(token: Token) -> str:
    text = token[1:-1].replace("''", "'")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _Refused(token.start_pos or 0, "text", "half of a surrogate pair") from None
    return text


def _is_literal(node: Expression) -> bool:
    return isinstance(node, Constant) or (isinstance(node, Number) and node.literal)


def _is_boolean(node: Expression) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, bool)


def _refuse(term: _Term, expected: str) -> NoReturn:
    node = term.node
    if isinstance(node, Not) and node.written is Written.BARE:
        expected += "; NOT binds before comparisons: write NOT (...) around one"
    raise _Refused(term.start, expected, _described(node))


def _described(node: Expression) -> str:
    if isinstance(node, Property):
        return f"the property {node.name}"
    if isinstance(node, Number):
        return str(node.value)
    if isinstance(node, Constant):
        return _shortened(repr(node.value)) if isinstance(node.value, str) else str(node.value or "NULL").upper()
    return "the minus of something else" if isinstance(node, Nothing) else "a condition"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


@lru_cache(maxsize=1)
def _parser() -> Lark:
    # Keywords are reserved everywhere, as in RocketMQ: not so with lark's contextual lexer.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder())


def parse_expression(text: str) -> BooleanNode:
    """The tree of an expression. ``FilterError`` for one that RocketMQ refuses, and for text after its end."""
    try:
        node: BooleanNode = _parser().parse(text)  # type: ignore[assignment]  # what the transformer makes
        _check_depth(node)
    except _Refused as refused:
        position, expected, found = refused.position, refused.expected, refused.found
    except UnexpectedCharacters as error:
        position = cast("int", error.pos_in_stream)
        found = repr(text[position])
        expected = _INSTEAD_OF.get(text[position], "only characters that expressions have")
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        position = len(text) if at_end else error.token.start_pos or 0
        found, expected = "the end" if at_end else _shortened(str(error.token)), _expected(error.expected)
    else:
        return node
    raise FilterError(text, position, expected=expected, found=found) from None


def _expected(terminals: Iterable[str]) -> str:
    """The terminals that could stand there."""
    names = {name for name in terminals if not name.startswith("__")}
    if "NAME" in names:
        return _AN_OPERAND
    shown = sorted(_SHOWN.get(name, name.lstrip("_")) for name in names)
    return shown[0] if len(shown) == 1 else f"one of {' '.join(shown)}"


def _check_depth(node: Expression) -> None:
    level: list[Expression] = [node]
    for _ in range(_MOST_LEVELS):
        level = [below for one in level for below in operands(one)]
        if not level:
            return
    raise _Refused(0, f"at most {_MOST_LEVELS} levels of conditions within each other", "more")
