"""The wheel and the source distribution hold the project's files and no others."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.distribution.contents import sdist_faults, tracked_files, wheel_faults
from tests.support.source_tree import PROJECT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = pytest.importorskip("hatchling.builders.wheel")
    (built,) = module.WheelBuilder(str(PROJECT)).build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    return Path(built)


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    assert wheel_faults(wheel) == []


def test_what_a_wheel_lacks_and_what_it_has_too_much_is_named(wheel: Path, tmp_path: Path) -> None:
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            if name != "commitlog_store/py.typed":
                after.writestr(name, before.read(name))
        after.writestr("tests/__init__.py", "")
    assert wheel_faults(changed) == [
        f"{wheel.name} lacks commitlog_store/py.typed",
        f"{wheel.name} has tests/__init__.py, which does not belong there",
    ]


@pytest.mark.skipif(shutil.which("git") is None or not (PROJECT / ".git").exists(), reason="needs a repository")
def test_the_source_distribution_holds_what_git_tracks(tmp_path: Path) -> None:
    module = pytest.importorskip("hatchling.builders.sdist")
    tracked = tracked_files()
    (built,) = module.SdistBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    # Files that are not yet tracked are no fault of the distribution.
    new = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=PROJECT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    assert sdist_faults(Path(built), tracked | {name for name in new if name}) == []
    with tarfile.open(built) as files:
        assert not [one.name for one in files if "/.venv/" in one.name or "/build/" in one.name]
