"""Scrapes for tests: the metrics of a front, read by prometheus-client's own parsers."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

BASE = frozenset({"cluster", "node_type", "node_id"})


def families(text: str) -> dict[str, Metric]:
    """By the family's name, which counters have without ``_total``."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def scrape(client: httpx.Client) -> list[Sample]:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return [sample for family in families(answer.text).values() for sample in family.samples]


def values(samples: list[Sample], name: str, *by: str, **where: str) -> dict[tuple[str, ...], float]:
    """The values of a series by the labels ``by``, of samples with the labels ``where``."""
    chosen = [one for one in samples if one.name == name and where.items() <= one.labels.items()]
    return {tuple(one.labels[label] for label in by): one.value for one in chosen}


def value(samples: list[Sample], name: str, **where: str) -> float:
    """The only value of a series."""
    (found,) = (one.value for one in samples if one.name == name and where.items() <= one.labels.items())
    return found


def own_labels(labels: Mapping[str, str]) -> frozenset[str]:
    return frozenset(labels) - BASE - {"le"}
