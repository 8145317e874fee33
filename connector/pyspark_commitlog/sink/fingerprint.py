"""Fingerprint of a micro-batch: a hash of its plan in the checkpoint; differs if the number is used for other rows.

Spark writes ``<checkpoint>/offsets/<batch id>`` before it runs a batch, and runs the batch again from that very file
after a crash. A batch that was planned again, from a restored checkpoint, has a file with other bytes.

Source: Spark ``sql/core/.../streaming/runtime/ResolveWriteToStream.scala`` (where the checkpoint is),
``.../streaming/checkpointing/OffsetSeqLog.scala``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from commitlog_store.errors import CommitLogError
from pyspark_commitlog.options.write import SinkOptions

_logger = logging.getLogger(__name__)

_DIGEST_SIZE = 16
# By scheme: how the names begin of the variables that credentials and regions of that cloud have. HDFS needs none.
_VARIABLES = {
    **dict.fromkeys(("s3", "s3a"), "AWS_"),
    "gs": "GOOGLE_",
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), "AZURE_"),
    "hdfs": "",
}
# Queries for which the warning about an unreadable checkpoint was logged.
_warned: set[str] = set()


def checkpoint_fingerprint(options: SinkOptions, checkpoint_root: str | None, query_id: str, batch_id: int) -> str:
    """A hash of the batch's plan, in hex; empty, with a warning, if this process cannot read the checkpoint.

    ``checkpoint_root`` is the session's ``spark.sql.streaming.checkpointLocation``.
    """
    location = options.checkpoint_location
    if location is None and checkpoint_root is not None:
        if options.query_name is None:
            # Spark creates a new checkpoint at every start of a query without a name: no batch can be planned twice.
            return ""
        location = os.path.join(checkpoint_root, options.query_name)
    for path in _local_paths(location):
        if _query_of(path) == query_id:
            try:
                plan = (path / "offsets" / str(batch_id)).read_bytes()
            except OSError:
                continue
            return hashlib.blake2b(plan, digest_size=_DIGEST_SIZE).hexdigest()
    found, reason = _object_plan(location, query_id, batch_id)
    if found is not None:
        return hashlib.blake2b(found, digest_size=_DIGEST_SIZE).hexdigest()
    if query_id not in _warned:
        _warned.add(query_id)
        _logger.warning(
            "The checkpoint of query %s, %s, cannot be read as files of this machine%s. Its batches are still written "
            "once each; but if the checkpoint is ever replaced by an older copy of itself, batches that hold other "
            "rows than before cannot be distinguished from repeated ones, and are skipped.",
            query_id,
            location,
            reason,
        )
    return ""


def checkpoint_within(options: SinkOptions) -> str | None:
    """The option checkpointLocation, if it is the store's directory or below it."""
    store = os.path.realpath(options.path)
    paths = _local_paths(options.checkpoint_location)
    inside = any(Path(os.path.realpath(path)).is_relative_to(store) for path in paths)
    return options.checkpoint_location if inside else None


def _object_plan(location: str | None, query_id: str, batch_id: int) -> tuple[bytes | None, str]:
    """The plan in a checkpoint in object storage or HDFS; None with the reason, if there is one to name.

    Nothing is asked unless the environment says something about that cloud: without keys, each batch would wait for a
    machine's role that does not exist.
    """
    scheme = (location or "").partition("://")[0].lower()
    variables = _VARIABLES.get(scheme)
    if location is None or variables is None:
        return None, ""
    if not any(name.startswith(variables) for name in os.environ):
        return None, f", nor as objects: the driver's environment has no {variables}* variable with keys or a region"
    from commitlog_store.object_storage.reading import read_object  # a checkpoint on a disk does not import it

    try:
        metadata = _json_of(read_object(location, "metadata"))
        if metadata is None or metadata.get("id") != query_id:
            return None, ", nor as objects: it is not there, or of another query"
        return read_object(location, f"offsets/{batch_id}"), ""
    except CommitLogError as error:
        return None, f", nor as objects: {error}"


def _local_paths(location: str | None) -> list[Path]:
    """The possible local paths of a checkpoint. Spark takes a URI's path literally, whether it has escapes or not; it
    resolves ``..`` in the text, where the system goes through directories, which may not exist or may lead elsewhere.
    """
    if location is None:
        return []
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?", location)
    if found is None:
        return _normalized(location)
    if found[1].lower() != "file" or (found[2] or "").lower() not in ("", "localhost"):
        return []
    path = re.sub("^/+", "/", location[found.end() :])
    return _normalized(path, unquote(path))


def _normalized(*paths: str) -> list[Path]:
    """Each path as Hadoop's ``Path`` normalizes it, and then as it is."""
    return [Path(form) for form in dict.fromkeys(form for one in paths for form in (os.path.normpath(one), one))]


def _query_of(checkpoint: Path) -> str | None:
    """The id of the query that a checkpoint belongs to; None if the directory is not a checkpoint."""
    try:
        metadata = _json_of((checkpoint / "metadata").read_bytes())
    except OSError:
        return None
    return None if metadata is None else metadata.get("id")


def _json_of(data: bytes | None) -> dict[str, Any] | None:
    """An object of JSON; None for anything else."""
    try:
        found = json.loads(data or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
