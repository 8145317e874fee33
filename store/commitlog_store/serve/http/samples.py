"""Samples: the numbers of one store at a scrape, before they are text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from commitlog_store.engine.stats import Histogram

# RocketMQ's labels of a store on a disk (DefaultStoreMetricsConstant).
LOCAL_DISK = ("local", "disk")
# The metric's name, the values of its own labels, and the value.
Value: TypeAlias = tuple[str, tuple[str, ...], float]


class Samples(NamedTuple):
    """Values and histograms by metric, each with the values of the metric's own labels."""

    values: list[Value]
    histograms: list[tuple[str, tuple[str, ...], Histogram]]


def summed(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of the values of all, which have the same buckets."""
    ones = list(histograms)
    counts = tuple(map(sum, zip(*(one.counts for one in ones), strict=True)))
    return Histogram(ones[0].upper_ends, counts, sum(one.total for one in ones))
