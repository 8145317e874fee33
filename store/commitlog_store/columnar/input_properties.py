r"""Encodes columns of properties into the property strings of records: ``name\x01value\x02...``

Text is ``large_binary`` here, UTF-8, since only its bytes matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.byte_parts import Part, binary_parts, join_rows, large_binary_of
from commitlog_store.errors import PutRefused
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.message_rules import OWN_PROPERTIES, name_fault
from commitlog_store.format.properties import KEY_SEPARATOR, TIMER_OUT_MS, UNIQ_KEY, WAIT
from commitlog_store.format.timer_messages import TIMER_PROPERTIES, out_ms, timer_deliver_ms
from commitlog_store.put_status import PutMessageStatus

# Refuses the rows that are set; the function gives the reason for a row.
Refuse = Callable[..., None]

_BINARY = pa.large_binary()
_NAME_END = b"\x01"
_ENTRY_END = b"\x02"
# Properties without a column of their own that matter on the way to the log.
_ASKED_FOR = (UNIQ_KEY, WAIT, *sorted(TIMER_PROPERTIES), TIMER_OUT_MS)


def separator_rows(values: pa.LargeBinaryArray) -> BoolArray:
    """Which values hold a byte that separates properties."""
    bounds, data = binary_parts(values)
    # Zero bytes count too: one comparison of all bytes settles nearly every column.
    held_bytes = data[bounds[0] : bounds[-1]]
    if not len(held_bytes) or int(held_bytes.min()) > _ENTRY_END[0]:
        return np.zeros(len(values), np.bool_)
    held = pc.or_(pc.match_substring(values, _NAME_END), pc.match_substring(values, _ENTRY_END))
    found: BoolArray = held.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def illegible_rows(values: pa.LargeBinaryArray) -> BoolArray:
    """Which values are not UTF-8. Arrow does not check that when a text is made of its buffers."""
    found = np.zeros(len(values), np.bool_)
    bounds, data = binary_parts(values)
    held_bytes = data[bounds[0] : bounds[-1]]
    if not len(held_bytes) or int(held_bytes.max()) < 0x80:
        return found
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        found[:] = [value is not None and not _is_utf8(value) for value in values.to_pylist()]
    return found


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def blank_to_null(values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The values with null for empty ones."""
    bounds, _ = binary_parts(values)
    if not values.null_count and (bounds[1:] > bounds[:-1]).all():
        return values
    given = (np.diff(bounds) > 0) & values.is_valid().to_numpy(zero_copy_only=False)
    if np.count_nonzero(given) == len(values) - values.null_count:
        return values
    # The same bytes under another bitmap. (pc.if_else of pyarrow 19 gives wrong bytes for a slice of an array.)
    bitmap = pa.py_buffer(np.packbits(given, bitorder="little"))
    return pa.Array.from_buffers(_BINARY, len(values), [bitmap, pa.py_buffer(bounds), values.buffers()[2]])


def join_keys(lists: pa.ListArray, refuse: Refuse) -> pa.LargeBinaryArray:
    """Each row's keys separated by spaces; null for rows without keys. Null and empty keys are skipped.

    A key that holds a space is refused: it would come back as two.
    """
    owner, values = _flat(lists, lists.values)
    keep = np.diff(binary_parts(values)[0]) > 0
    keep &= values.is_valid().to_numpy(zero_copy_only=False)
    spaced = pc.match_substring(values, KEY_SEPARATOR.encode()).fill_null(False).to_numpy(zero_copy_only=False)
    if spaced.any():
        wrong = np.zeros(len(lists), np.bool_)
        wrong[owner[spaced]] = True
        refuse(wrong, lambda _: "one of its keys holds a space, which separates keys")
    values, owner = values.filter(pa.array(keep)), owner[keep]
    joined = pc.binary_join(
        pa.LargeListArray.from_arrays(pa.array(_row_bounds(owner, len(lists))), values),
        pa.scalar(KEY_SEPARATOR.encode(), _BINARY),
    )
    return blank_to_null(joined)


def _flat(lists: pa.ListArray | pa.MapArray, children: pa.Array) -> tuple[Int64Array, pa.LargeBinaryArray]:
    """The children of all rows that are not null, and the row of each one."""
    bounds = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    owner = np.repeat(np.arange(len(lists)), np.diff(bounds))
    values = large_binary_of(children.slice(bounds[0], bounds[-1] - bounds[0]))
    if lists.null_count:
        # The values under a null row are undefined.
        valid = lists.is_valid().to_numpy(zero_copy_only=False)[owner]
        owner, values = owner[valid], values.filter(pa.array(valid))
    return owner, values


def _row_bounds(owner: Int64Array, count: int) -> Int64Array:
    """Where each row's entries start among all, one number more than rows."""
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=bounds[1:])
    return bounds


@dataclass(frozen=True)
class PropertyMap:
    """A parsed map column: the properties with a column of their own, by name, and all others as stored.

    ``asked_for`` has UNIQ_KEY, WAIT and the timer's, by name, where a row has one; they are among the others too.
    """

    own: dict[str, pa.LargeBinaryArray] = field(default_factory=dict)
    others: pa.LargeBinaryArray | None = None
    asked_for: dict[str, pa.LargeBinaryArray] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        column: pa.MapArray | None,
        refuse: Refuse,
        ignored: AbstractSet[str] = frozenset(),
        *,
        entry: str = "property",
    ) -> PropertyMap:
        """A null value means that the property is not set; of equal names with a column, the last one counts.

        ``ignored`` are names whose properties are not set either. ``entry`` is the word for a property in refusals.
        """
        if column is None:
            return cls()
        count = len(column)
        owner, names = _flat(column, column.keys)
        _, values = _flat(column, column.items)
        coded = names.dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        distinct = [name.decode("utf-8", "surrogateescape") for name in coded.dictionary.to_pylist()]
        keep = values.is_valid().to_numpy(zero_copy_only=False)
        if not ignored.isdisjoint(distinct):
            keep = keep & ~np.isin(codes, [code for code, name in enumerate(distinct) if name in ignored])
        _refuse_names(distinct, codes, owner, keep, count, refuse, entry)
        _refuse_values(distinct, codes, owner, keep, values, count, refuse, entry)
        own, asked_for = {}, {}
        for name in (*OWN_PROPERTIES, *_ASKED_FOR):
            if name in distinct:
                entries = np.flatnonzero(keep & (codes == distinct.index(name)))
                found = _last_of_rows(owner, entries, values, count)
                if name in _ASKED_FOR:
                    asked_for[name] = found
                    continue
                own[name] = found
                keep[entries] = False
        if not keep.all():
            owner, names, values = owner[keep], names.filter(pa.array(keep)), values.filter(pa.array(keep))
        return cls(own, _stored(owner, names, values, count), asked_for)

    def timers(
        self, delay_levels: npt.NDArray[np.int32] | None, now_ms: int, max_delay_sec: int, refuse: Refuse
    ) -> Int64Array | None:
        """The TIMER_OUT_MS of each row that asks for a timer, -1 for others; None where no row does.

        ``delay_levels``: 0 for a row that is not delayed, None for all. Rows with a time that no store takes are
        refused (``timer_messages``).
        """
        names = sorted(TIMER_PROPERTIES & self.asked_for.keys())
        if not names:
            return None
        texts = {name: self.asked_for[name].to_pylist() for name in names}
        delivered = self.asked_for.get(TIMER_OUT_MS)
        free = np.ones(len(self.asked_for[names[0]]), np.bool_)
        if delivered is not None:
            free &= delivered.is_null().to_numpy(zero_copy_only=False)
        if delay_levels is not None:
            free &= delay_levels == 0
        outs = np.full(len(free), -1, np.int64)
        faults: dict[int, str] = {}
        for row in np.flatnonzero(free).tolist():
            given = {name: text.decode("utf-8", "replace") for name in names if (text := texts[name][row]) is not None}
            if not given:
                continue
            try:
                deliver_ms = timer_deliver_ms(given, now_ms, max_delay_sec)
            except PutRefused as refusal:
                faults[row] = refusal.reason[0].lower() + refusal.reason[1:-1]
            else:
                outs[row] = -1 if deliver_ms is None else out_ms(deliver_ms)
        wrong = np.isin(np.arange(len(outs)), list(faults))
        refuse(wrong, faults.__getitem__, PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL)
        return outs if (outs >= 0).any() else None


def _last_of_rows(
    owner: Int64Array, entries: Int64Array, values: pa.LargeBinaryArray, count: int
) -> pa.LargeBinaryArray:
    place_of = np.full(count, -1, np.int64)
    place_of[owner[entries]] = entries
    return values.take(pa.array(place_of, mask=place_of < 0))


def _refuse_names(
    distinct: Sequence[str],
    codes: npt.NDArray[np.int32],
    owner: Int64Array,
    keep: BoolArray,
    count: int,
    refuse: Refuse,
    entry: str,
) -> None:
    for code, name in enumerate(distinct):
        fault = name_fault(name)
        if fault is None and not (name.isascii() or _is_utf8(name.encode("utf-8", "surrogateescape"))):
            fault = f"the property {name!r}, whose name is not UTF-8 text"
        if fault is not None:
            wrong = np.zeros(count, np.bool_)
            wrong[owner[keep & (codes == code)]] = True
            said = fault.replace("property", entry, 1)
            refuse(wrong, lambda _, said=said: f"it has {said}")


def _refuse_values(
    distinct: Sequence[str],
    codes: npt.NDArray[np.int32],
    owner: Int64Array,
    keep: BoolArray,
    values: pa.LargeBinaryArray,
    count: int,
    refuse: Refuse,
    entry: str,
) -> None:
    empty = np.diff(binary_parts(values)[0]) == 0
    faults = (
        (empty, "is empty, which RocketMQ skips when reading: leave it out"),
        (illegible_rows(values), "is not UTF-8 text"),
        (separator_rows(values), "holds '\\x01' or '\\x02', which separate properties"),
    )
    for found, fault in faults:
        entries = np.flatnonzero(found & keep)
        if len(entries):
            wrong = np.zeros(count, np.bool_)
            wrong[owner[entries]] = True
            name_of = dict(zip(owner[entries[::-1]].tolist(), codes[entries[::-1]].tolist(), strict=True))
            refuse(
                wrong,
                lambda row, fault=fault, name_of=name_of: (
                    f"the value of its {entry} {distinct[name_of[row]]!r} {fault}"
                ),
            )


def _stored(
    owner: Int64Array, names: pa.LargeBinaryArray, values: pa.LargeBinaryArray, count: int
) -> pa.LargeBinaryArray | None:
    if not len(owner):
        return None
    entries = pc.binary_join_element_wise(
        names, _scalar(_NAME_END), values, _scalar(_ENTRY_END), _scalar(b""), null_handling="replace"
    )
    # The entries of a row lie next to each other, so a row's string is all bytes from its first entry to its last.
    bounds, _ = binary_parts(entries)
    offsets = np.ascontiguousarray(bounds[_row_bounds(owner, count)])
    return pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(offsets), entries.buffers()[2]])


def property_parts(
    others: pa.LargeBinaryArray | None,
    own: Sequence[tuple[str, pa.LargeBinaryArray | None]],
    count: int,
    trailing_separator: bool,
) -> list[Part]:
    """The property strings of ``count`` rows, to be joined: the others, then the named ones in the order given.

    A null is a property that the row does not have.
    """
    parts: list[Part] = [] if others is None else [others]
    constant = b""
    for name, values in own:
        if values is None:
            continue
        head = name.encode("utf-8") + _NAME_END
        if not values.null_count:
            parts += [constant + head, values]
            constant = _ENTRY_END
        else:
            parts += [constant, _entries(head, values)] if constant else [_entries(head, values)]
            constant = b""
    if trailing_separator or not parts:
        return [*parts, constant] if constant else parts
    if constant:
        return parts
    starts, data = join_rows(parts, count)
    joined = pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(starts), pa.py_buffer(data)])
    return [pc.binary_slice(joined, 0, -1)]


def _entries(head: bytes, values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """One property as it is stored, and nothing where the value is null."""
    entries = pc.binary_join_element_wise(_scalar(head), values, _scalar(_ENTRY_END), _scalar(b""))
    # Joined with a null, the whole entry is null, which takes no bytes.
    return pa.Array.from_buffers(_BINARY, len(values), [None, *entries.buffers()[1:]], offset=entries.offset)


def _scalar(data: bytes) -> pa.LargeBinaryScalar:
    return pa.scalar(data, _BINARY)
