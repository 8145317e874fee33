"""How a reader treats damage: ``on_damage``, and the report of a read that skips."""

from __future__ import annotations

from typing import Literal, get_args

from commitlog_store.format.consume_queue_unit import FILLER_SIZE, Units
from commitlog_store.paths import checked_choice
from commitlog_store.queue.skipped import SkippedRange, Skips

OnDamage = Literal["raise", "skip", "skip-records"]


def checked_on_damage(on_damage: OnDamage) -> OnDamage:
    """``InvalidValue``."""
    return checked_choice("on_damage", on_damage, get_args(OnDamage))


def skips_of(on_damage: OnDamage, skipped: list[SkippedRange]) -> Skips | None:
    """The report of a read that skips, which adds to ``skipped``; None for one that raises. ``InvalidValue``."""
    how = checked_on_damage(on_damage)
    return None if how == "raise" else Skips(skipped, missing_files=how == "skip")


def without_impossible(units: Units) -> Units:
    """The units, with fillers in the place of impossible ones."""
    bad = (units["size"] <= 0) | (units["physical_offset"] < 0)
    if bad.any():
        units[bad] = (0, FILLER_SIZE, 0)
    return units
