"""The functions of ``commitlog_store.files.disk`` that change a file: the places where a writer can die or fail."""

from __future__ import annotations

CHANGES = (
    *("create_file", "open_for_writing", "allocate", "write_at", "write_mapped", "store_mapped", "sync", "truncate"),
    *("rename", "unlink", "make_directory", "remove_directory", "sync_directory", "create_unnamed_file", "give_name"),
    "punch_hole",
)
