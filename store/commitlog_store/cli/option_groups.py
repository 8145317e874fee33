"""Groups of options: a parameter of a command that is a dataclass, whose fields are options of the command line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, get_type_hints


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: in the place of each group are its options, by the names of its fields.

    The options have the values of the group's default as defaults. ``TypeError`` for a group without a default, and for
    a field with a ``default_factory``, whose value would be shared by all calls.
    """
    # Those of the innermost function: what wraps it may have annotations of its own.
    hints, own = get_type_hints(inspect.unwrap(command), include_extras=True), inspect.signature(command)
    usual: dict[str, Any] = {one.name: one.default for one in own.parameters.values() if is_dataclass(hints[one.name])}
    parameters: list[inspect.Parameter] = []
    for one in own.parameters.values():
        options = _options(one) if one.name in usual else [one.replace(annotation=hints[one.name])]
        parameters += options

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        made = {
            name: replace(group, **{one.name: given.pop(one.name) for one in fields(group) if one.name in given})
            for name, group in usual.items()
        }
        command(*args, **given, **made)

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    del run.__wrapped__  # whose parameters typer would look at
    return run


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The options of a group."""
    group = parameter.default
    if group is parameter.empty:
        raise TypeError(f"The group of options {parameter.name!r} needs a default: the options take theirs from it.")
    shared = [one.name for one in fields(group) if one.default_factory is not MISSING]
    if shared:
        raise TypeError(f"Options have no default_factory: {', '.join(shared)} of {type(group).__name__}.")
    kinds = get_type_hints(type(group), include_extras=True)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(one.name, kind, default=getattr(group, one.name), annotation=kinds[one.name])
        for one in fields(group)
    ]
