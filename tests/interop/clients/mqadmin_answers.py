"""What mqadmin prints of this package's server, beside what it printed of a real broker (``golden/mqadmin``)."""

from __future__ import annotations

import re
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "store" / "serve" / "rocketmq" / "golden" / "mqadmin"
# Lists of what the server happens to have, and settings, of which a store has fewer.
_OTHERS = {"topicList", "getBrokerConfig"}
# The properties that a broker adds to a message, and this package does not.
_ADDED = re.compile(r"(MSG_REGION=\w+|CLUSTER=\w+|TRACE_ON=\w+), |, (TRACE_ON|CLUSTER)=\w+(?=})")
_MASKS = (
    (_ADDED, ""),
    (re.compile(r"\b[0-9A-F]{32,}\b"), "ID"),
    (re.compile(r"\d+"), "N"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"-+"), "-"),
)


def _shapes(printed: str, *, names_only: bool) -> set[str]:
    """Its lines without numbers, ids and widths; ``names_only``: up to the colon."""
    found = set()
    for text in printed.splitlines():
        line = text
        for pattern, mask in _MASKS:
            line = pattern.sub(mask, line)
        found.add(line.split(":")[0].strip() if names_only else line.strip())
    return found


def unlike_a_broker(client: str, command: str, printed: str) -> list[str]:
    """The lines whose like a real broker's answer does not have: none, if all is well.

    A look-up that came before its message is in the index prints why, and is repeated by its test.
    """
    if command in _OTHERS or (command.startswith("queryMsg") and "Exception" in printed):
        return []
    golden = (GOLDEN / client / f"{command}.txt").read_text(encoding="utf-8")
    names_only = command == "brokerStatus"
    extra = _shapes(printed, names_only=names_only) - _shapes(golden, names_only=names_only) - {""}
    # Groups in a list, and positions in a queue for retries, which a client stores when it comes to it.
    return sorted(line for line in extra if command != "consumerProgress" or re.match(r"(#|Consume)", line))
