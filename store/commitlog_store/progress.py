"""Progress: the function that a caller gives to long work, to be called as it goes on."""

from __future__ import annotations

from collections.abc import Callable

# Called with how much is done, and how much there is to do at most. The unit is the one of the work: bytes of the log
# or of objects, or the queue offsets that an export reads.
Progress = Callable[[int, int], None]
