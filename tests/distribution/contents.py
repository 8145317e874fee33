"""What is in a wheel and in a source distribution, compared with the files of the project."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

from tests.support.source_tree import PROJECT

PACKAGES = {"commitlog_store": PROJECT / "store", "pyspark_commitlog": PROJECT / "connector"}
# Beside the packages: metadata, and files that an installation puts elsewhere.
_OF_METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
_OF_DATA = ("data/data/share/man/man1/commitlog.1",)
# What hatchling adds to a source distribution by itself.
_ADDED = {"PKG-INFO", ".gitignore", "LICENSE", "NOTICE", "README.md", "pyproject.toml"}


def wheel_faults(wheel: Path) -> list[str]:
    """What is missing in a wheel, and what should not be there."""
    with zipfile.ZipFile(wheel) as files:
        found = set(files.namelist())
    stem = "-".join(wheel.name.split("-")[:2])
    expected = {
        path.relative_to(root).as_posix()
        for package, root in PACKAGES.items()
        for path in (root / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    expected |= {f"{stem}.dist-info/{name}" for name in _OF_METADATA} | {f"{stem}.{name}" for name in _OF_DATA}
    return _differences(wheel, expected, found)


def sdist_faults(sdist: Path, tracked: set[str]) -> list[str]:
    """What is missing in a source distribution, and what should not be there; ``tracked`` are the project's files."""
    with tarfile.open(sdist) as files:
        found = {str(PurePosixPath(*PurePosixPath(one.name).parts[1:])) for one in files if not one.isdir()}
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    included = [path.lstrip("/") for path in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]]
    expected = {
        name for name in tracked if name in _ADDED or any(name == one or name.startswith(f"{one}/") for one in included)
    }
    return _differences(sdist, expected | _ADDED, found)


def _differences(file: Path, expected: set[str], found: set[str]) -> list[str]:
    missing = [f"{file.name} lacks {name}" for name in sorted(expected - found)]
    return missing + [f"{file.name} has {name}, which does not belong there" for name in sorted(found - expected)]


def tracked_files() -> set[str]:
    """The files that git tracks, and that exist."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (PROJECT / name).is_file()}
