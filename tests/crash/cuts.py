"""The promise of an opening: it does what the forecast says, and no whole record is cut off without being kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import walk_past_damage
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.recovery.kept import kept_pieces
from commitlog_store.testing import start_of


def whole_records(store: Path) -> set[tuple[int, bytes]]:
    """Place and bytes of every whole record of a log, wherever it lies."""
    with contextlib.closing(CommitLog(str(store / "commitlog"))) as log:
        log.refresh()
        parts = [part for part in walk_past_damage(log, log.bounds()[0], 2**63 - 1) if isinstance(part, RecordScan)]
        return {
            (scan.physical_offset + at, scan.data[at : at + size].tobytes())
            for scan in parts
            for at, size in zip(scan.positions.tolist(), scan.sizes.tolist(), strict=True)
        }


@contextlib.contextmanager
def opened_as_forecast(store: Path, config: MessageStoreConfig) -> Iterator[MessageStore]:
    """An open store: what it cut off was forecast, is reported, and is kept."""
    exists = (store / "commitlog").exists()
    forecast = forecast_open(store, config) if exists else None
    before = whole_records(store) if exists else set()
    pieces = {piece.path for piece in kept_pieces(store)}
    with MessageStore.open(store, config) as opened:
        if forecast is not None:
            assert forecast.refusal is None
            assert start_of(opened) == forecast.start
            recovered = opened.recovered
            assert (None if recovered is None else recovered.cut) == forecast.cut
            assert opened.physical_bounds()[1] == forecast.end or recovered is None
        # A piece that a crash had left unfinished has been replaced.
        kept = [piece for piece in kept_pieces(store) if piece.path not in pieces]
        missing = before - whole_records(store)
        assert missing <= {record for piece in kept for record in whole_records(Path(piece.path))}
        assert bool(missing) == bool(kept)
        yield opened
