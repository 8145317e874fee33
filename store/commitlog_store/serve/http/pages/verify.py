"""Verify: the store's quick assessment, the verification under way, and the last report with its findings."""

from __future__ import annotations

import re

from commitlog_store.errors import CommitLogError
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.templates import path_part, with_query
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View
from commitlog_store.verify.findings import Finding

_ROWS = 50
# A finding's byte is that of a field; its words name the record.
_RECORD = re.compile(r"\bat physical offset (\d+)")


def _look(reader: StoreReader, asked: Asked) -> Values:
    state = asked.verification.state
    findings = [] if state.report is None else state.report.findings
    paging = Paging.of(asked, len(findings), _ROWS)
    quick, problem = None, ""
    try:
        quick = asked.shared.assessment.of(reader)
    except CommitLogError as error:
        problem = str(error)
    store = asked.text("store")
    return {
        "path": reader.path, "state": state, "quick": quick, "problem": problem, "paging": paging,
        "left": 0 if state.report is None else sum(one.count for one in state.report.counts) - len(findings),
        "rows": [_row(one, reader.paths, store) for one in findings[paging.start : paging.stop]],
    }  # fmt: skip


def _row(finding: Finding, paths: StorePaths, store: str) -> Values:
    name = finding.path.removeprefix(paths.root + "/")
    return {"finding": finding, "name": name, "link": link_to(finding, paths, store)}


def link_to(finding: Finding, paths: StorePaths, store: str) -> str:
    """The page about what a finding is about: a message, messages of a queue, or a topic; empty for other places."""
    record = _RECORD.search(finding.message) if paths.holds_log_file(finding.path) else None
    if record is not None:
        return with_query(f"/messages/{record[1]}", {"store": store})
    if finding.topic is None:
        return ""
    if finding.queue_id is None or finding.queue_offset is None:
        return with_query(f"/topics/{path_part(finding.topic)}", {"store": store})
    place = {"topic": finding.topic, "queue": finding.queue_id, "offset": finding.queue_offset}
    return with_query("/messages", {"store": store, **place})


VIEW = View(name="verify", path="/verify", look=_look)
