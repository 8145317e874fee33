"""The files around a release agree with the project: versions, matrices, and what a distribution holds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib

import pytest

import commitlog_store
from tests.support.source_tree import PROJECT
from tests.support.waiting import WAIT_LIMIT_S
from tests.versions.__main__ import PYTHONS, SPARKS

WORKFLOW = PROJECT / ".github" / "workflows" / "ci.yml"


def matrix(name: str) -> list[str]:
    """The values of a matrix of the workflow."""
    (found,) = re.findall(rf"^ +{name}: (\[.*\])$", WORKFLOW.read_text(encoding="utf-8"), re.MULTILINE)
    values: list[str] = json.loads(found)
    return values


def test_the_workflow_runs_each_version_that_is_supported() -> None:
    assert tuple(matrix("python")) == PYTHONS
    assert tuple(matrix("spark")) == SPARKS


def test_the_workflow_runs_what_a_checkout_runs() -> None:
    commands = re.findall(r"^ +- run: (.+)$", WORKFLOW.read_text(encoding="utf-8"), re.MULTILINE)
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert ".ci/run" in commands
    assert (PROJECT / ".ci" / "run").exists()
    assert {command.split()[1] for command in commands if command.startswith("make ")} <= targets


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="needs actionlint")
def test_actionlint_finds_nothing_wrong() -> None:
    ran = subprocess.run(["actionlint", str(WORKFLOW)], check=False, capture_output=True, timeout=WAIT_LIMIT_S)
    assert ran.returncode == 0, ran.stdout.decode()


def test_classifiers_and_citation_name_the_supported_versions() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: Python :: 3\.", one)]
    assert tuple(named) == PYTHONS
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {commitlog_store.__version__}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_the_files_that_the_source_distribution_is_to_hold_exist() -> None:
    included = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    paths = included["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [path for path in paths if not (PROJECT / path.lstrip("/")).exists()] == []
