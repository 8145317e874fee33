"""BlockYaml: the part of YAML that ``plain_acl.yml`` uses: nested members and lists, a line each.

    globalWhiteRemoteAddresses:
    - 10.10.103.*
    accounts:
      - accessKey: rocketmq2
        admin: true

All else of YAML (anchors, tags, objects in braces, texts of several lines) is refused with the line's number, and so
is a plain number that YAML 1.1 reads as another one, such as ``01234567``. Errors show no line: it may be a secret.

Source: YAML 1.1 (https://yaml.org/spec/1.1/, https://yaml.org/type/), as SnakeYAML reads it for RocketMQ's
``acl/common/AclUtils.java``.
"""

from __future__ import annotations

import re
from typing import NoReturn, TypeAlias

from commitlog_store.errors import InvalidValue

Node: TypeAlias = "dict[str, Node] | list[Node] | str | None"

_MEMBER = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*:(?:\s+(.*))?")
_COMMENT = re.compile(r"\s+#.*")
_QUOTED = re.compile(r"""(?:'((?:[^']|'')*)'|"((?:[^"\\]|\\["\\])*)")\s*(?:\s#.*)?""")
_NULL = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {
    **{word: "true" for name in ("y", "yes", "true", "on") for word in (name, name.capitalize(), name.upper())},
    **{word: "false" for name in ("n", "no", "false", "off") for word in (name, name.capitalize(), name.upper())},
}
del _BOOLEANS["y"], _BOOLEANS["Y"], _BOOLEANS["n"], _BOOLEANS["N"]  # SnakeYAML keeps them as they are
# Numbers and times whose text is not what a program gets that asks for a string.
_CHANGED = re.compile(
    r"[-+][0-9][0-9_]*|0[0-7_]+|[0-9]+_[0-9_]*|[-+]?0[xb][0-9A-Fa-f_]+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"
)
_OTHER_BEGINNINGS = tuple("*&!|>%@`{}],?")
_DEEPEST = 16


def parse_block_yaml(text: str, source: str) -> Node:
    """The value of a file. Scalars are text, or None. ``InvalidValue`` has the number of a line, not its content."""
    return _Parser(text, source).parse()


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0
        # Number, indentation, and the rest of each line that has content.
        self._lines: list[tuple[int, int, str]] = []
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
            rest = line.strip()
            if not rest or rest.startswith("#") or (rest == "---" and not self._lines):
                continue
            indent = line[: len(line) - len(line.lstrip())]
            if indent.strip(" "):
                self._refuse(number, "is indented with other characters than spaces")
            self._lines.append((number, len(indent), rest))

    def parse(self) -> Node:
        if not self._lines:
            return None
        found = self._block(self._lines[0][1])
        if self._at < len(self._lines):
            self._refuse(self._lines[self._at][0], "has an indentation that no line before it has")
        return found

    def _refuse(self, number: int, why: str) -> NoReturn:
        raise InvalidValue(f"Line {number} of {self._source} {why}.")

    def _is_item(self, indent: int) -> bool:
        if self._at >= len(self._lines):
            return False
        _, found, rest = self._lines[self._at]
        return found == indent and (rest == "-" or rest.startswith("- "))

    def _block(self, indent: int) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(self._lines[self._at][0], f"is nested deeper than {_DEEPEST} times")
        found: Node = self._items(indent) if self._is_item(indent) else self._members(indent)
        self._depth -= 1
        return found

    def _items(self, indent: int) -> list[Node]:
        found: list[Node] = []
        while self._is_item(indent):
            number, _, rest = self._lines[self._at]
            value = rest[1:].lstrip()
            if _MEMBER.fullmatch(value):
                # The item's members stand below the first one.
                inner = indent + len(rest) - len(value)
                self._lines[self._at] = number, inner, value
                found.append(self._block(inner))
            else:
                self._at += 1
                found.append(self._value(number, value, indent))
        return found

    def _members(self, indent: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while self._at < len(self._lines) and self._lines[self._at][1] == indent and not self._is_item(indent):
            number, _, rest = self._lines[self._at]
            member = _MEMBER.fullmatch(rest)
            if member is None:
                self._refuse(number, "is neither NAME: VALUE nor - ITEM")
            name = member[1]
            if name in found:
                self._refuse(number, f"has {name} a second time")
            self._at += 1
            value = member[2] or ""
            if (not value or value.startswith("#")) and self._is_item(indent):
                found[name] = self._block(indent)  # a list may stand as far left as its name
            else:
                found[name] = self._value(number, value, indent)
        return found

    def _value(self, number: int, text: str, indent: int) -> Node:
        """A scalar; or the block below, which is indented more."""
        is_empty = not text or text.startswith("#")
        is_followed = self._at < len(self._lines) and self._lines[self._at][1] > indent
        if is_followed and not is_empty:
            self._refuse(self._lines[self._at][0], "goes on with the value of the line before, or is indented too far")
        if is_empty:
            return self._block(self._lines[self._at][1]) if is_followed else None
        return self._scalar(number, text)

    def _scalar(self, number: int, text: str) -> Node:
        if text[0] in "'\"":
            quoted = _QUOTED.fullmatch(text)
            if quoted is None:
                self._refuse(number, 'has quotes that do not end there, or an escape other than \\" and \\\\')
            if quoted[1] is not None:
                return quoted[1].replace("''", "'")
            return re.sub(r"\\(.)", r"\1", quoted[2])
        text = _COMMENT.sub("", text).rstrip()
        if text[0] == "[":
            return self._flow_list(number, text)
        if text.startswith(_OTHER_BEGINNINGS) or text.startswith(("- ", "? ")) or text == "-":
            self._refuse(number, f"begins with {text[0]}, which has a meaning in YAML: put the text in quotes")
        return self._plain(number, text)

    def _flow_list(self, number: int, text: str) -> Node:
        inner = text[1:-1].strip()
        if not text.endswith("]") or any(mark in inner for mark in "[]{}\"'#"):
            self._refuse(number, "has a list in brackets with more than plain texts: write an item a line, as - ITEM")
        return [self._plain(number, item.strip()) for item in inner.split(",") if item.strip()]

    def _plain(self, number: int, text: str) -> str | None:
        if ": " in text or text.endswith(":"):
            self._refuse(number, "has a colon within a text: put the text in quotes")
        if text in _NULL:
            return None
        if _CHANGED.fullmatch(text):
            self._refuse(number, "has a number or a time that YAML reads as another text: put it in quotes")
        return _BOOLEANS.get(text, text)
