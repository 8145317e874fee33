"""Groups of options: a parameter of a command that is a dataclass, whose fields are options of the command line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: in the place of each group are its options, by the names of its fields."""
    # Those of the innermost function: what wraps it may have annotations of its own.
    hints, own = get_type_hints(inspect.unwrap(command), include_extras=True), inspect.signature(command)
    groups: dict[str, Any] = {name: hints[name] for name in own.parameters if is_dataclass(hints[name])}
    parameters: list[inspect.Parameter] = []
    for one in own.parameters.values():
        options = _options(groups[one.name]) if one.name in groups else [one.replace(annotation=hints[one.name])]
        parameters += options

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name, one.default) for one in fields(group)})
            for name, group in groups.items()
        }
        command(*args, **given, **made)

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    del run.__wrapped__  # whose parameters typer would look at
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(one.name, kind, default=one.default, annotation=kinds[one.name]) for one in fields(group)]
