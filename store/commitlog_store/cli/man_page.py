"""The manual page ``commitlog(1)``, made from the commands and options of the application.

``make man`` writes it to ``docs/commitlog.1``, from where the wheel installs it. The site describes options, values and
defaults with the same functions.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

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


def commands_of(found: Any, name: str, panel: str = "") -> Iterator[tuple[str, str, Any]]:
    """Each command below ``found`` (a command of typer) with its group in the help and its full name."""
    below = getattr(found, "commands", None)
    if below is None:
        yield panel, name, found
        return
    for word, command in below.items():
        yield from commands_of(command, f"{name} {word}", getattr(command, "rich_help_panel", None) or panel)


def options_of(command: Any) -> list[Any]:
    """The options of a command that its help shows, ``--help`` apart."""
    return [param for param in command.params if _is_option(param) and param.name != "help" and not param.hidden]


def arguments_of(command: Any) -> list[Any]:
    """The arguments of a command, in their order."""
    return [param for param in command.params if not _is_option(param)]


def _is_option(param: Any) -> bool:
    return str(param.opts[0]).startswith("-")


def names_of(option: Any) -> list[str]:
    """The names of an option, its letter first."""
    return sorted([*option.opts, *option.secondary_opts], key=lambda name: name.startswith("--"))


def help_of(option: Any) -> str:
    """What an option does, and its default."""
    return f"{option.help or ''}{_default(option)}"


def _default(option: Any) -> str:
    shown = option.show_default if isinstance(option.show_default, str) else None
    if shown is None:
        value = option.default.value if isinstance(option.default, enum.Enum) else option.default
        if option.is_flag or value is None or callable(value) or value in ("", [], ()) or not option.show_default:
            return ""
        shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f" Default: {shown}."
