"""Options for the sizes of a new store's files."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from commitlog_store.cli.options import CountOption, SizeOption


@dataclass(frozen=True, kw_only=True)
class FileSizes:
    """Settings of ``MessageStoreConfig``, by its names."""

    mapped_file_size_commit_log: SizeOption = None
    mapped_file_size_consume_queue: SizeOption = None
    max_hash_slot_num: CountOption = None
    max_index_num: CountOption = None

    def given(self) -> dict[str, int]:
        """Those that are given."""
        return {name: size for name, size in asdict(self).items() if size is not None}


USUAL_SIZES = FileSizes()
