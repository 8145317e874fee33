"""Random SQL92 expressions and messages for the filter tests: seeded, most of them accepted by RocketMQ's parser."""

from __future__ import annotations

import random
from collections.abc import Callable

NAMES = ("a", "b", "A", "price", "TAGS", "KEYS", "$x_1", "_y", "none")
# What properties hold: numbers of all kinds, what only looks like one, words, and texts beyond ASCII.
VALUES = (
    "0", "1", "5", "-5", "+5", "007", "10", "10.5", "10.", ".5", "1e3", "1E-3", "-0", "-0.0", "0.0", "2147483647",
    "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "99999999999999999999999", "1e308", "1e309", "-1e309", "4.9e-324", "1e-400", "NaN", "-NaN", "nan", "Infinity",
    "-Infinity", "inf", "1d", "1.5f", "2L", "0x10", "0x1p3", "0x1.8p1", "0x.8p1d", "0xp1", " 5", "5 ", "\t5\n", "1_000",
    "٥", "５", "𝟓", "", "x", "X", "y", "abc", "abcabc", "true", "TRUE", "False", "tRuE", "o'clock", "a b", "ü", "日本",
    "%", "-", "+", ".", "e5", "1e", "--5", "9007199254740993", "9007199254740992.0", "0.1", "0.10",
)  # fmt: skip
LITERALS = (
    "0", "1", "5", "10", "5L", "10l", "2147483647", "2147483648", "9223372036854775807", "0.5", ".5", "5.", "5.0",
    "10.5", "1e3", "1E-3", "9007199254740993", "9007199254740992.0", "0.1", "4.9e-324", "-5", "- 5", "+5", "- -5",
    "-2147483648", "-9223372036854775807", "-0", "-10.5",
)  # fmt: skip
TEXTS = (
    "''",
    "'x'",
    "'X'",
    "'y'",
    "'abc'",
    "'b'",
    "'o''clock'",
    "'5'",
    "'10.5'",
    "'true'",
    "'TRUE'",
    "'ü'",
    "'日'",
    "' '",
)
HAND_WRITTEN = (
    "a", "NOT a", "(a)", "TRUE", "NULL", "NOT NULL", "5", "'x'", "-a", "+a", "- - a", "((a = 5))", "a = b", "a <> b",
    "a = 5 = TRUE", "a = 5 = b", "TRUE = a", "a = TRUE", "FALSE <> a", "5 = TRUE", "TRUE = 5", "'true' = TRUE",
    "TRUE = 'true'", "TRUE = TRUE", "'a' = 'a'", "1 = 1.0", "1 = 1L", "1 = 'x'", "'5' = 5", "5 > 3", "5 > 3L",
    "5 >= 5.0", "-5 < 5", "a > 'x'", "a > TRUE", "a > NULL", "a > -'x'", "a = -'x'", "-'x' = -'y'", "-'x' IS NULL",
    "a = NULL", "NULL = a", "a <> NULL", "NULL IS NULL", "5 IS NULL", "a IS NULL IS NULL", "a = 5 IS NOT NULL",
    "(a > 5) IS NULL", "a > b > 1", "a > (b > 1)", "-(a > 5) IS NULL", "-(a > 5) = 5", "b > -(a > 5)", "a = -(b > 5)",
    "NOT a = 5", "NOT a > 5", "NOT a IN ('x')", "NOT (a IN ('x'))", "a NOT IN ('x', 'y')", "'x' IN ('x')",
    "(a) IN ('x')", "+a IN ('x')", "a IN ('1','2','3','4','5','x')", "a IN ()", "a IN (5)", "a IN ('x',)",
    "a BETWEEN 1 AND 10", "a BETWEEN 10 AND 1", "a BETWEEN 5 AND 5", "a BETWEEN 5 AND -3", "a BETWEEN -3 AND 5",
    "a BETWEEN 1 AND 10.5", "a BETWEEN 1 AND 'x'", "a BETWEEN NULL AND 5", "a BETWEEN b AND 10",
    "a NOT BETWEEN 1 AND 10", "a NOT BETWEEN 10 AND 1", "5 BETWEEN 1 AND 10", "a BETWEEN 1 AND 10 AND b = 5",
    "a CONTAINS 'b'", "a CONTAINS ''", "a NOT CONTAINS ''", "a NOT CONTAINS 'b'", "'abc' CONTAINS 'b'",
    "5 CONTAINS '5'", "a CONTAINS 5", "a STARTSWITH 'ab'", "a NOT STARTSWITH 'ab'", "a ENDSWITH 'bc'",
    "a NOT ENDSWITH 'bc'", "a CONTAINS 'a' CONTAINS 'b'", "(a > 5) CONTAINS 'x'", "a is not null",
    "a iN ('x') oR b BeTwEeN 1 aNd 2", "a = 5 -- five\n AND b = 5", "a = /* x */ 5", "a = 5 /* * ** / */ OR b = 5",
    "a = --5", "a=5AND b=5", "a = 5 AND(b = 5)", "nota = 5", "a = 0.0", "a = 1e400", "a = 1e-400",
    "a = 9223372036854775808", "-9223372036854775808 = a", "a == 5", "a != 5", "a LIKE 'x'", "a + 1 = 2", "a = \"x\"",
    "a = 'x", "(a = 5", "a AND", "AND a", "", "()", "a IS 5", "a NOT 5", "a >", "1a = 5", "a = 5 AND b", "a AND b",
    "a OR b", "NOT a OR NOT b", "a > 5 OR TRUE", "TRUE OR a > 5", "a > 5 AND FALSE", "FALSE AND a > 5",
    "NULL AND a > 5", "NULL OR a > 5", "NULL AND FALSE", "FALSE AND NULL", "NULL OR TRUE",
    "a > 5 AND (b > 5 OR price > 5)", "5 = 5 = TRUE", "(a = 5) = (b = 5)", "(a > 5) = TRUE", "(a > 5) <> (b > 5)",
    "a = (b = 5)", "(a = 5) = b", "5 = (a = 5)", "(a = 5) = 5", "a > 5 IS NULL", "a <> 'x' AND a <> 'y'",
    "none IS NULL", "none = none", "none <> none", "none = 'x'", "none <> 'x'", "'x' = none", "'x' <> none", "none > 5",
    "5 > none", "none BETWEEN 1 AND 2", "none IN ('x')", "none NOT IN ('x')", "none CONTAINS 'x'",
    "none NOT CONTAINS 'x'", "NOT none", "a < 'x' AND FALSE", "a = 5.", "a = .5", "a = 5E2", "a = 007", "a = 0L",
    "a = 5l",
)  # fmt: skip


def random_messages(seed: int, count: int) -> list[dict[str, str]]:
    """Messages with some of the properties, none of them empty."""
    source = random.Random(seed)
    values = [value for value in VALUES if value]
    return [{name: source.choice(values) for name in NAMES[:-1] if source.random() < 0.75} for _ in range(count)]


# One for each value of the most-used property, so that each meets each expression.
MESSAGES = [{"a": value, "b": VALUES[-1 - at] or "x", "price": "7"} for at, value in enumerate(VALUES) if value] + [
    {},
    {"b": "5"},
]


def random_expression(source: random.Random, depth: int = 3) -> str:
    """An expression; about one in ten is one that the parser refuses."""
    if depth and source.random() < 0.6:
        kind = source.randrange(5)
        left, right = (random_expression(source, depth - 1) for _ in range(2))
        if kind == 0:
            return f"NOT ({left})"
        if kind == 4:
            return f"({left}) {source.choice(('=', '<>', 'IS NULL AND', 'IS NOT NULL OR'))} ({right})"
        return f"({left}) {source.choice(('AND', 'OR', 'and', 'Or'))} ({right})"
    return _condition(source)


def _condition(source: random.Random) -> str:
    name = source.choice(NAMES)
    text, negation = source.choice(TEXTS), source.choice(("", "NOT "))
    forms: list[Callable[[], str]] = [
        lambda: f"{_operand(source)} {source.choice(('=', '<>'))} {_operand(source)}",
        lambda: f"{name} {source.choice(('=', '<>', '<', '<=', '>', '>='))} {source.choice(LITERALS)}",
        lambda: f"{name} {source.choice(('<', '<=', '>', '>='))} {source.choice((*NAMES, *LITERALS))}",
        lambda: f"{source.choice(LITERALS)} {source.choice(('<', '>=', '='))} {name}",
        lambda: f"{name} {negation}BETWEEN {source.choice(LITERALS)} AND {source.choice((*LITERALS, name))}",
        lambda: f"{name} {negation}IN ({', '.join(source.choices(TEXTS, k=source.randint(1, 6)))})",
        lambda: f"{name} {negation}{source.choice(('CONTAINS', 'STARTSWITH', 'ENDSWITH'))} {text}",
        lambda: f"{name} IS {negation}NULL",
        lambda: f"{name} {source.choice(('=', '<>'))} {text}",
        lambda: name,
    ]
    return source.choice(forms)()


def _operand(source: random.Random) -> str:
    return source.choice((*NAMES, *LITERALS, *TEXTS, "TRUE", "FALSE", "-'x'", "-a", "(a > 5)", "(b = 'x')"))
