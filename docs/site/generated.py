"""Pages made from the code: the API from docstrings, the commands from the command line, codes from the server's."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import commitlog_store
from commitlog_store.cli.man_page import arguments_of, commands_of, help_of, names_of, options_of

# The subjects of the API's pages, each with the modules of its names. A name of another module is in the last one.
_SUBJECTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "store": ("The store", ("store", "stager", "transaction", "engine", "batch_id")),
    "reader": ("Reading", ("reader", "queue", "filter", "log", "index", "metadata")),
    "messages": ("Messages and columns", ("message", "columnar", "format", "delayed")),
    "config": ("Settings", ("config",)),
    "groups": ("Consumers and groups", ("consumers", "groups")),
    "half-messages": ("Half messages", ("half", "half_message")),
    "remote": ("Stores of other hosts", ("remote",)),
    "operations": ("Checks, repair and copies", ("verify", "repair", "salvage", "export", "follower", "retention")),
}
_REST = ("further", "Further names")
_MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "errors": ("Errors", ("commitlog_store.errors", "pyspark_commitlog.errors")),
    "spark": ("Spark", ("pyspark_commitlog", "pyspark_commitlog.listener", "pyspark_commitlog.prometheus_metrics")),
    "testing": ("Tests", ("commitlog_store.testing", "commitlog_store.pytest_plugin")),
}


def generated_pages(root: Any, exit_codes: Mapping[int, str], codes: Iterable[type[IntEnum]]) -> dict[str, str]:
    """All of them, by their place on the site. ``root`` is the application as a command, ``codes`` the enumerations."""
    return {"commands.md": commands_page(root, exit_codes), "codes.md": codes_page(codes), **api_pages()}


def commands_page(root: Any, exit_codes: Mapping[int, str]) -> str:
    """The commands with their arguments, options and defaults, as Markdown."""
    lines = ["# Commands", "", f"{_prose(root.help)} See also [the command line](command-line.md).", ""]
    commands = list(commands_of(root, "commitlog"))
    for panel in dict.fromkeys(panel for panel, _, _ in commands):
        lines += [f"## {panel}", ""]
        for _, name, command in (one for one in commands if one[0] == panel):
            lines += _command(name, command)
    lines += ["## Exit status", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {_cell(meaning)} |" for code, meaning in exit_codes.items()]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> list[str]:
    arguments = arguments_of(command)
    usage = " ".join([name, *map(_argument, arguments), "[OPTIONS]"])
    lines = [f"### {name}", "", "```text", usage, "```", "", _prose(command.help), ""]
    rows = [(f"`{param.metavar}`", param.help) for param in arguments if param.help]
    rows += [(_option(param), help_of(param)) for param in options_of(command)]
    if rows:
        lines += ["| | |", "|---|---|", *(f"| {_cell(left)} | {_prose(_cell(right))} |" for left, right in rows), ""]
    if command.epilog:
        lines += ["```console", *command.epilog.splitlines(), "```", ""]
    return lines


def _argument(param: Any) -> str:
    name = f"{param.metavar}{' ...' if param.nargs == -1 else ''}"
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    value = "" if param.is_flag else f" {param.metavar}"
    return ", ".join(f"`{name}{value if name.startswith('--') else ''}`" for name in names_of(param))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str | None) -> str:
    """Text of a help as Markdown: nothing in it is a tag, a link or an emphasis."""
    words = "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))
    for sign in "<*_[$":
        words = words.replace(sign, f"\\{sign}")
    return words


def codes_page(codes: Iterable[type[IntEnum]]) -> str:
    """The request and response codes of the server for RocketMQ's clients, as Markdown."""
    lines = ["# Codes of the remoting protocol", ""]
    lines += ["The codes that `commitlog serve --rocketmq` knows. [RocketMQ's own clients](rocketmq-clients.md)"]
    lines += ["says what it answers to each request, and when it refuses one.", ""]
    for code in codes:
        lines += [f"## {code.__name__}", "", _prose(inspect.getdoc(code)), "", "| code | name |", "|---|---|"]
        lines += [f"| {one.value} | {one.name} |" for one in code] + [""]
    return "\n".join(lines)


def api_pages() -> dict[str, str]:
    """The pages of the API: one a subject, as reStructuredText for Sphinx's autodoc."""
    names: dict[str, list[str]] = {page: [] for page in (*_SUBJECTS, _REST[0])}
    for name, module in public_names().items():
        names[_subject(module)].append(name)
    titles = {page: title for page, (title, _) in _SUBJECTS.items()} | dict([_REST])
    pages = {
        page: _heading(titles[page]) + "".join(map(_documented, sorted(found)))
        for page, found in names.items()
        if found
    }
    for page, (title, modules) in _MODULES.items():
        pages[page] = _heading(title) + "".join(map(_module, modules))
    index = _heading("API") + "The public names of both packages, by subject. ``help()`` shows the same.\n\n"
    index += ".. toctree::\n   :maxdepth: 2\n\n" + "".join(f"   {page}\n" for page in pages)
    return {"api/index.rst": index} | {f"api/{page}.rst": text for page, text in pages.items()}


def public_names() -> dict[str, str]:
    """The public names of ``commitlog_store``, each with its module, as the package's stub lists them."""
    stub = ast.parse(Path(commitlog_store.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module != "commitlog_store"
        for alias in node.names
    }


def _subject(module: str) -> str:
    room = module.split(".")[1]
    return next((page for page, (_, rooms) in _SUBJECTS.items() if room in rooms), _REST[0])


def _documented(name: str) -> str:
    value = getattr(commitlog_store, name)
    if inspect.isclass(value):
        return f".. autoclass:: commitlog_store.{name}\n   :members:\n   :undoc-members:\n\n"
    if inspect.isfunction(value):
        return f".. autofunction:: commitlog_store.{name}\n\n"
    shown = f"{{{', '.join(map(repr, value))}}}" if isinstance(value, Mapping) else repr(value)
    return f".. py:data:: commitlog_store.{name}\n\n   ``{shown}``\n\n"


def _module(name: str) -> str:
    heading = f"{name}\n{'-' * len(name)}\n\n"
    return f"{heading}.. automodule:: {name}\n   :members:\n   :show-inheritance:\n\n"


def _heading(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"
