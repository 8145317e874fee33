"""The manual page ``commitlog(1)``, made from the commands and options of the application.

``make man`` writes it to ``docs/commitlog.1``, from where the wheel installs it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from commitlog_store.cli.command_tree import arguments_of, commands_of, help_of, names_of, options_of

# Options that so many commands have are described once.
_COMMON = 4


def man_page(root: Any, exit_codes: dict[int, str]) -> str:
    """The page of an application (a command of typer with commands below it) as roff, for ``man``."""
    commands = list(commands_of(root, "commitlog"))
    counts = Counter(_described(param) for _, _, command in commands for param in options_of(command))
    common = {described for described, count in counts.items() if count >= _COMMON}
    # No version and no date: the page changes with the commands alone.
    lines = ['.TH COMMITLOG 1 "" "commitlog" "User Commands"']
    lines += [".SH NAME", r"commitlog \- inspect, verify, repair and write RocketMQ's message store"]
    lines += [".SH SYNOPSIS", r"\fBcommitlog\fR \fICOMMAND\fR [\fIOPTIONS\fR] \fIARGUMENTS\fR"]
    lines += [".SH DESCRIPTION", *_paragraphs(root.help)]
    lines += [".SH OPTIONS", *(line for param in options_of(root) for line in _described(param))]
    lines += [
        ".SH COMMON OPTIONS",
        "Each command names those of them that it has, and has",
        r"\fB\-h\fR, \fB\-\-help\fR.",
    ]
    for described in sorted(common):
        lines += described
    for panel in dict.fromkeys(panel for panel, _, _ in commands):
        lines.append(f'.SH "{_escaped(panel).upper()}"')
        for _, name, command in (one for one in commands if one[0] == panel):
            lines += _command(name, command, common)
    lines += [".SH EXIT STATUS"]
    for code, meaning in exit_codes.items():
        lines += [".TP", f"\\fB{code}\\fR", _escaped(meaning)]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any, common: set[tuple[str, ...]]) -> list[str]:
    arguments = arguments_of(command)
    usage = [f"\\fB{_escaped(name)}\\fR", *map(_argument, arguments), "[\\fIOPTIONS\\fR]"]
    lines = [f".SS {' '.join(usage)}", *_paragraphs(command.help)]
    for param in arguments:
        if param.help:
            lines += [".TP", f"\\fI{_escaped(param.metavar)}\\fR", _escaped(param.help)]
    shared = []
    for param in options_of(command):
        described = _described(param)
        if described in common:
            shared.append(f"\\fB{_escaped(param.opts[0])}\\fR")
        else:
            lines += described
    if shared:
        lines += [".PP", f"Common options: {', '.join(shared)}."]
    if command.epilog:
        lines += [".PP", ".EX", *(_escaped(line) for line in command.epilog.splitlines()), ".EE"]
    return lines


def _argument(param: Any) -> str:
    name = f"\\fI{_escaped(param.metavar)}\\fR" + (" ..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _described(param: Any) -> tuple[str, ...]:
    """The lines about an option."""
    value = "" if param.is_flag else f" \\fI{_escaped(param.metavar)}\\fR"
    bold = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in names_of(param))
    return ".TP", f"{bold}{value}", _escaped(help_of(param))


def _paragraphs(text: str | None) -> list[str]:
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", (text or "").strip()):
        lines += [".PP", _escaped(" ".join(paragraph.split()))]
    return lines[1:]


def _escaped(text: str) -> str:
    """Text for roff: a backslash, a hyphen that stays one, and a line that is no request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain
