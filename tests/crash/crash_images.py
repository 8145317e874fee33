"""Images of crashes at random points of a recording, checked one by one; and crashes of what recovers from one.

A failure names the workload, the point of its recording, and the seed of the image.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.crash.simulated_disk import CrashImages, RecordingDisk
from tests.crash.stored_messages import Stored
from tests.crash.workloads import Recording, slow_clock

AnyRecording = TypeVar("AnyRecording", bound=Recording)


def recording_of(
    name: str, record: Callable[[Path], AnyRecording], recordings: dict[str, AnyRecording], root: Path
) -> AnyRecording:
    """The recording of that name: among those that were made, or made below ``root`` and added."""
    if name not in recordings:
        root.mkdir()
        recordings[name] = record(root)
    return recordings[name]


def _spoil_nothing(store: Path, chance: random.Random) -> str:  # as others do
    return ""


def check_images(
    name: str,
    recorder: RecordingDisk,
    seed: str,
    images: int,
    memory: Path,
    check: Callable[[Path, int], None],
    spoil: Callable[[Path, random.Random], str] = _spoil_nothing,
) -> None:
    """Check so many images of the workload of that name. ``check`` gets the store and the point of the crash.

    ``spoil`` does something more to the store before, and says what.
    """
    chance = random.Random(seed)
    # One in each of so many equal parts of the recording, so that no part of it goes without.
    points = [int((part + chance.random()) * (recorder.now + 1) / images) for part in range(images)]
    crashes = CrashImages(recorder)
    store = memory / "image" / "store"
    for number, point in enumerate(points):
        crashes.advance(point)
        image_seed = f"{seed}/{number}"
        crashes.write(memory / "image", random.Random(image_seed))
        spoilt = spoil(store, random.Random(image_seed))
        try:
            with slow_clock():
                check(store, point)
        except Exception as error:
            where = f"workload {name}, crash after {point} operations, seed {image_seed}"
            raise AssertionError(f"{where}, {spoilt}" if spoilt else where) from error


def check_prefix(there: Sequence[Stored], recording: Recording, point: int) -> None:
    """What is in the log is the beginning of what was appended, and has all that was safe at the point."""
    assert there == recording.history[: len(there)], "not a prefix of what was appended (invariant 4)"
    safe = recording.safe_at(point)
    missing = [record for record in recording.history[len(there) :] if record.physical_offset < safe]
    assert not missing, f"{len(missing)} safe messages are lost, from {missing[0].physical_offset} on (invariant 2)"


def crash_anywhere(recorder: RecordingDisk, chance: random.Random, memory: Path) -> Path:
    """The root of an image of a crash at a point that ``chance`` chooses; the store is in there."""
    crashes = CrashImages(recorder)
    crashes.advance(chance.randrange(recorder.now + 1))
    crashes.write(memory / "crashed", chance)
    return memory / "crashed"


def kept_by_recovery(recording: Recording, second: Recording, seed: str) -> tuple[list[Stored], list[tuple[int, int]]]:
    """What the recovery that ``second`` begins with has kept of ``recording``, and what is safe in ``second`` when.

    What the first crash has kept, another one keeps: recovery finds the same end whenever it is interrupted.
    """
    _, end = second.floors[0]
    before = [record for record in second.history if record.physical_offset < end]
    assert before == recording.history[: len(before)], f"{seed}: recovery kept what was not a prefix"
    return before, [(0, end), *second.floors]
