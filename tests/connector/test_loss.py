"""Loss: the missing part of a wanted range, where reading continues, and how the loss is reported."""

from __future__ import annotations

import logging

import pytest

from pyspark_commitlog.errors import DataLossError, TailLostError
from pyspark_commitlog.loss import Loss, find_losses, report_losses


@pytest.mark.parametrize(
    ("wanted", "available", "replaced", "kinds", "left"),
    [
        ((3, 9), (0, 20), None, (), (3, 9)),
        ((3, 9), (3, 9), None, (), (3, 9)),
        ((3, 9), None, None, (Loss.QUEUE,), (9, 9)),
        ((3, 9), (5, 20), None, (Loss.HEAD,), (5, 9)),
        ((3, 9), (0, 7), None, (Loss.TAIL,), (3, 7)),
        ((3, 9), (5, 7), None, (Loss.TAIL, Loss.HEAD), (5, 7)),
        ((3, 9), (0, 20), 9, (Loss.REPLACED,), (3, 9)),
        ((3, 9), (0, 7), 3, (Loss.TAIL,), (3, 7)),
        ((3, 9), (5, 20), 9, (Loss.REPLACED, Loss.HEAD), (5, 9)),
        # Nothing of the range is left: what is left is empty, and never turned round.
        ((3, 9), (12, 20), None, (Loss.HEAD,), (9, 9)),
        ((3, 9), (0, 2), None, (Loss.TAIL,), (2, 2)),
        ((3, 9), (0, 0), None, (Loss.TAIL,), (0, 0)),
        # A stream's position alone, which has nothing to read.
        ((9, 9), (0, 9), None, (), (9, 9)),
        ((9, 9), (0, 7), None, (Loss.TAIL,), (7, 7)),
        ((9, 9), (0, 9), 9, (Loss.REPLACED,), (9, 9)),
    ],
)
def test_losses_of_a_range_are_found(
    wanted: tuple[int, int],
    available: tuple[int, int] | None,
    replaced: int | None,
    kinds: tuple[Loss, ...],
    left: tuple[int, int],
) -> None:
    losses = find_losses(wanted, available, replaced)
    assert (losses.kinds, losses.left) == (kinds, left)


def test_without_fail_on_data_loss_every_loss_is_a_warning_that_says_where_reading_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        report_losses("orders", 2, find_losses((3, 9), (5, 7)), fail=False)
    tail, head = (record.getMessage() for record in caplog.records)
    assert "planned up to offset 9, but the queue now ends at 7" in tail
    assert tail.endswith("Continuing at offset 7.")
    assert "wanted offsets [3, 9), available are [5, 7)" in head
    assert head.endswith("Continuing at offset 5.")


def test_with_fail_on_data_loss_the_error_has_the_ranges() -> None:
    with pytest.raises(DataLossError, match="failOnDataLoss") as head:
        report_losses("orders", 2, find_losses((3, 9), (5, 20)), fail=True)
    assert (head.value.wanted, head.value.available) == ((3, 9), (5, 20))
    with pytest.raises(DataLossError, match="available are none") as queue:
        report_losses("orders", 2, find_losses((3, 9), None), fail=True)
    assert (queue.value.wanted, queue.value.available) == ((3, 3), None)
    with pytest.raises(TailLostError, match="failOnDataLoss") as tail:
        report_losses("orders", 2, find_losses((3, 9), (0, 7)), fail=True)
    assert (tail.value.position, tail.value.available) == (9, (0, 7))
    with pytest.raises(TailLostError, match="message at offset 2 is not the one") as replaced:
        report_losses("orders", 2, find_losses((3, 9), (0, 20), 3), fail=True)
    assert (replaced.value.position, replaced.value.available) == (3, (0, 20))


def test_a_range_without_loss_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    report_losses("orders", 2, find_losses((3, 9), (0, 9)), fail=True)
    assert not caplog.records
