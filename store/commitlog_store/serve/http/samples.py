"""Samples: the numbers of one store at a scrape, before they are text; and which names have series of their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from commitlog_store.engine.stats import Histogram

# RocketMQ's labels of a store on a disk (DefaultStoreMetricsConstant).
LOCAL_DISK = ("local", "disk")
# The metric's name, the values of its own labels, and the value.
Value: TypeAlias = tuple[str, tuple[str, ...], float]


class Samples(NamedTuple):
    """Values and histograms by metric, each with the values of the metric's own labels."""

    values: list[Value]
    histograms: list[tuple[str, tuple[str, ...], Histogram]]


def add_bounded(
    samples: Samples,
    metric: str,
    names: BoundedNames[_K],
    values: Mapping[_K, float],
    labels: Callable[[_K], tuple[str, ...]],
    rest: tuple[str, ...],
) -> None:
    """The values of names with a series of their own, by ``labels`` of each; and the sum of the others as ``rest``."""
    own, others = names.split(values)
    samples.values.extend((metric, labels(name), value) for name, value in own.items())
    if others is not None:
        samples.values.append((metric, rest, others))


def summed(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of the values of all, which have the same buckets."""
    ones = list(histograms)
    counts = tuple(map(sum, zip(*(one.counts for one in ones), strict=True)))
    return Histogram(ones[0].upper_ends, counts, sum(one.total for one in ones))


# No name of a topic or group: these have no parentheses.
REST = "(other)"

_K = TypeVar("_K", bound=Hashable)


class BoundedNames(Generic[_K]):
    """The first ``most`` names, the largest first, keep their series; counters would go back if a name lost its own.

    The rest is one series, so that labels are bounded.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._named: set[_K] = set()

    def admit(self, values: Mapping[_K, float]) -> None:
        """Give names their own series while there is room."""
        room = self._most - len(self._named)
        new = [name for name in values if name not in self._named] if room > 0 else []
        if len(new) > room:
            new = sorted(new, key=lambda name: -values[name])[:room]
        self._named.update(new)

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def split(self, values: Mapping[_K, float]) -> tuple[dict[_K, float], float | None]:
        """The values of names with a series of their own, and the sum of the others; None without others."""
        own = {name: value for name, value in values.items() if name in self._named}
        rest = None if len(own) == len(values) else sum(values.values()) - sum(own.values())
        return own, rest
