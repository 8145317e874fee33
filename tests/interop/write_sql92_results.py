"""Writes ``tests/store/filter/sql92_results.json``: what RocketMQ's SQL92 filter says of expressions and messages.

``python -m tests.interop.write_sql92_results DIRECTORY`` keeps RocketMQ's jars in DIRECTORY. The default test suite
compares with the file, so that it needs no RocketMQ; ``test_filters.py`` compares with RocketMQ itself.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tests.interop.rocketmq import install
from tests.support.source_tree import PROJECT
from tests.support.sql92_cases import HAND_WRITTEN, MESSAGES, random_expression, random_messages

_VERSION = "5.3.3"
_RANDOM_EXPRESSIONS = 200
_RANDOM_MESSAGES = 40


def main(cache: str) -> None:
    """Ask RocketMQ, and write its answers: a letter a message, or null for a refused expression."""
    source = random.Random(92)
    expressions = list(dict.fromkeys([*HAND_WRITTEN, *(random_expression(source) for _ in range(_RANDOM_EXPRESSIONS))]))
    asked = [*MESSAGES, *random_messages(92, _RANDOM_MESSAGES)]
    answers = install(_VERSION, Path(cache)).filter(expressions, asked)
    lines = [
        json.dumps([expression, None if answer is None else "".join(one[0] for one in answer)])
        for expression, answer in zip(expressions, answers, strict=True)
    ]
    messages = ",\n".join(json.dumps(message) for message in asked)
    text = (
        f'{{"rocketmq": "{_VERSION}",\n"messages": [\n{messages}\n],\n"results": [\n{f",{chr(10)}".join(lines)}\n]}}\n'
    )
    (PROJECT / "tests" / "store" / "filter" / "sql92_results.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
