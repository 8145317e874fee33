"""The commands of the application as the manual page and the site describe them: options, values, defaults."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any


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
