"""The tutorials run as they are written: programs are saved under their names, commands are run, outputs compared.

A ``python`` block begins with a comment, the name of its file. A ``console`` block has commands with their output
(``tests/support/shown_commands.py``). Only ``shell`` blocks are not run: they install what the tests have already.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.store.cli.commands import shell
from tests.support.local_spark import PROJECT
from tests.support.shown_commands import Step, matches, steps_of
from tests.support.spark_programs import SparkPrograms

TUTORIALS = PROJECT / "docs" / "tutorials"
# The directory that a tutorial works in.
PLACE = Path("/tmp/tutorial")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# (\w+\.py)\n")
_PYTHON = re.compile(r"python (\w+\.py)")


def blocks_of(name: str, directory: Path = PLACE) -> list[tuple[str, str]]:
    """The language and the content of each block of a tutorial."""
    text = (TUTORIALS / name).read_text(encoding="utf-8")
    return _BLOCK.findall(text.replace(str(PLACE), str(directory)))


def follow(name: str, directory: Path, spark: SparkPrograms | None = None) -> None:
    """Do what the tutorial says, with ``directory`` for its directory, which has a checkout as the reader has it."""
    (directory / "pyspark-commitlog").symlink_to(PROJECT)
    for language, block in blocks_of(name, directory):
        if language == "python":
            named = _FILE_NAME.match(block)
            assert named, f"{name}: the first line of a program is the name of its file: {block[:60]}"
            (directory / named[1]).write_text(block, encoding="utf-8")
        elif language == "console":
            for step in steps_of([block]):
                done = _run(step, directory, spark)
                printed = done.stdout or done.stderr
                if done.returncode != step.exit_code or (step.shown and not matches(step.shown, printed)):
                    expected = "\n".join(step.shown)
                    pytest.fail(
                        f"{name}: {step.command} ended with {done.returncode}\n{done.stdout}{done.stderr}\n"
                        f"expected exit code {step.exit_code} and\n{expected}",
                        pytrace=False,
                    )


def _run(step: Step, directory: Path, spark: SparkPrograms | None) -> subprocess.CompletedProcess[str]:
    program = _PYTHON.fullmatch(step.command)
    if spark is not None and program:
        return spark.run(directory / program[1], directory=directory)
    # With `cd`, since a command alone may run in this process, whose directory is another one. With `exit`, since the
    # shell would become the last command, and a killed shell has no exit code.
    return shell(f"cd {os.fspath(directory)!r} && {step.command}; exit $?")


def test_every_tutorial_is_run() -> None:
    pages = {page.name for page in TUTORIALS.glob("*.md")} - {"README.md"}
    assert pages == {"damaged-store.md", "embedded-log.md", "rocketmq-in-spark.md"}
    languages = {language for page in pages for language, _ in blocks_of(page)}
    assert languages == {"console", "python", "shell"}


@pytest.mark.parametrize("name", ["embedded-log.md", "damaged-store.md"])
def test_a_tutorial_without_spark_ends_as_it_says(name: str, tmp_path: Path) -> None:
    follow(name, tmp_path)


@pytest.mark.spark
def test_the_tutorial_for_spark_ends_as_it_says(tmp_path: Path, spark_programs: SparkPrograms) -> None:
    follow("rocketmq-in-spark.md", tmp_path, spark_programs)
