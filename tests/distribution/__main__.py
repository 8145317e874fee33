"""Checks the wheel and the source distribution in ``dist/``: ``python -m tests.distribution``, after ``make build``.

twine checks the metadata; the contents are compared with the project's files; the wheel is installed in an empty
environment of each Python that is found, where the command, the package and a put are tried. For the last it takes a
network: the dependencies come from pip's index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import commitlog_store
from tests.distribution.contents import sdist_faults, tracked_files, wheel_faults
from tests.support.source_tree import PROJECT
from tests.versions.__main__ import PYTHONS, find_python

# In the empty environment, away from the checkout.
_PROGRAM = """
import sys
from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
with MessageStore.open(sys.argv[1], MessageStoreConfig.embedded()) as store:
    store.put("orders", b"paid", keys=["k"])
with StoreReader.open(sys.argv[1]) as reader:
    (message,) = reader.query("orders", "k")
print(sys.version.split()[0], message.body)
"""


def distributions() -> tuple[Path, Path]:
    """The wheel and the source distribution of this version. ``SystemExit`` unless ``make build`` made both."""
    stem = f"pyspark_commitlog-{commitlog_store.__version__}"
    found = PROJECT / "dist" / f"{stem}-py3-none-any.whl", PROJECT / "dist" / f"{stem}.tar.gz"
    missing = [path.name for path in found if not path.exists()]
    if missing:
        raise SystemExit(f"dist/ lacks {' and '.join(missing)}: run make build first")
    return found


def try_out(wheel: Path, python: str) -> None:
    """Install the wheel alone in a new environment of ``python``, and use it. ``CalledProcessError``."""
    with tempfile.TemporaryDirectory(prefix="commitlog-dist-") as name:
        directory = Path(name)
        subprocess.run([python, "-m", "venv", directory / "venv"], check=True)
        binaries = directory / "venv" / "bin"
        pip: list[str | Path] = [binaries / "python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", wheel], check=True)
        subprocess.run([*pip, "check"], check=True, cwd=directory)
        subprocess.run([binaries / "commitlog", "--version"], check=True, cwd=directory)
        subprocess.run([binaries / "python", "-W", "error", "-c", _PROGRAM, directory / "store"], check=True, cwd=name)
        subprocess.run([binaries / "commitlog", "doctor", directory / "store"], check=True, cwd=directory)
        manual = directory / "venv" / "share" / "man" / "man1" / "commitlog.1"
        if not manual.exists():
            raise SystemExit(f"the wheel did not install {manual}")


def main() -> int:
    """Check both files, and return an exit code."""
    wheel, sdist = distributions()
    twine = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    faults = [] if subprocess.run(twine, check=False).returncode == 0 else ["twine refuses the metadata, see above"]
    faults += [*wheel_faults(wheel), *sdist_faults(sdist, tracked_files())]
    for version in PYTHONS:
        python = find_python(version)
        if python is None:
            print(f"Python {version} is not here: not tried")
            continue
        try:
            try_out(wheel, python)
        except subprocess.CalledProcessError as error:
            faults.append(f"the wheel does not work in Python {version}: {error}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{wheel.name} and {sdist.name}: {f'{len(faults)} faults' if faults else 'all is well'}")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
