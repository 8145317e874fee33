"""Damage of an archive's objects as errors: which object, which byte, what was expected and found, and what to do."""

from __future__ import annotations

from commitlog_store.errors import ArchiveDamaged
from commitlog_store.object_storage.checked_pages import WrongPage

RESTORE_ADVICE = "Restore the object, from another version or copy of the bucket."


class WrongBytes(ValueError):
    """Bytes of an object that contradict its format. ``offset`` is the byte in the object."""

    def __init__(self, what: str, offset: int, expected: object, found: object) -> None:
        super().__init__(f"{what} at byte {offset}: expected {expected}, found {found}")
        self.offset = offset
        self.expected = expected
        self.found = found


def check_start(found: tuple[bytes, int], magic: bytes, version: int) -> None:
    """``WrongBytes`` for an object that does not begin with these."""
    if found != (magic, version):
        raise WrongBytes("Its beginning", 0, f"{magic!r} and version {version}", f"{found[0]!r} and version {found[1]}")


def not_decoded(name: str, kind: str, error: Exception) -> ArchiveDamaged:
    """The error of an object that does not have the format of its ``kind``."""
    wrong = error if isinstance(error, WrongBytes) else WrongBytes("", 0, kind, str(error))
    return ArchiveDamaged(
        f"{name} is not {kind}: {error}. {RESTORE_ADVICE}",
        name=name,
        offset=wrong.offset,
        expected=wrong.expected,
        found=wrong.found,
    )


def damaged(url: str, name: str, *, offset: int, expected: object, found: object) -> ArchiveDamaged:
    """The error of an object that is not as its archive's manifest says."""
    return ArchiveDamaged(
        f"{url}/{name} is not as the archive's manifest says, at byte {offset}: expected {expected}, found {found}. "
        f"{advice_for(url)}",
        name=name,
        offset=offset,
        expected=expected,
        found=found,
    )


def missing(url: str, name: str) -> ArchiveDamaged:
    """The error of an object that a manifest names, and that is not there."""
    return ArchiveDamaged(f"{url}/{name} is missing, and the archive's manifest names it. {advice_for(url)}", name=name)


def other_bytes(url: str, name: str, size: int, crc: int, *, found: int) -> ArchiveDamaged:
    """The error of an object whose bytes have another CRC-32."""
    return damaged(url, name, offset=0, expected=f"{size} bytes with the CRC-32 {crc:08x}", found=f"{found:08x}")


def other_page(url: str, name: str, page: WrongPage) -> ArchiveDamaged:
    """The error of an object with a page whose content has another CRC-32 than the page says at its end."""
    expected = f"a page of {page.size} bytes with the CRC-32 {page.stored:08x}"
    return damaged(url, name, offset=page.offset, expected=expected, found=f"{page.computed:08x}")


def advice_for(url: str) -> str:
    """What to do about a damaged object."""
    return f"'commitlog archive --check --deep {url}' says what else is damaged. {RESTORE_ADVICE}"
