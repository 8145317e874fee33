"""Imports are light: which modules each loads, in a fresh interpreter, since this one has imported everything."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import WAIT_LIMIT_S


def modules_after(*statements: str, given: str = "") -> set[str]:
    """The modules that ``statements`` load in a new interpreter, beyond those that ``given`` loads first."""
    script = "\n".join(
        [
            "import json, sys",
            given,
            "before = set(sys.modules)",
            *statements,
            "print(json.dumps(sorted(set(sys.modules) - before)))",
        ]
    )
    command = [sys.executable, "-W", "error", "-c", script]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_LIMIT_S)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout.splitlines()[-1]))


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_the_store_loads_neither_spark_nor_the_terminal() -> None:
    loaded = packages(
        modules_after("import commitlog_store", "commitlog_store.StoreReader, commitlog_store.MessageStore")
    )
    assert "commitlog_store" in loaded
    assert not loaded & {"pyspark", "pyspark_commitlog", "py4j", "typer", "rich", "pandas", "lark"}


def test_a_directory_needs_nothing_of_the_network(tmp_path: Path) -> None:
    loaded = modules_after(
        "from commitlog_store import MessageStore, StoreReader",
        f"with MessageStore.open({str(tmp_path / 'store')!r}) as store: store.put('orders', b'x')",
        f"with StoreReader.open({str(tmp_path / 'store')!r}) as reader: reader.scan('orders').read_all()",
    )
    assert "commitlog_store.reader" in loaded
    assert not {name for name in loaded if "flight" in name}
    assert not {name for name in loaded if name.startswith(("commitlog_store.serve", "commitlog_store.remote"))}


def test_a_server_without_http_needs_nothing_of_the_web() -> None:
    loaded = packages(modules_after("import commitlog_store.serve.run, commitlog_store.cli.serve"))
    assert not loaded & {"asyncio", "jinja2", "markupsafe", "prometheus_client", "starlette", "uvicorn"}


def test_the_errors_and_paths_load_nothing_heavy() -> None:
    loaded = packages(modules_after("import commitlog_store.errors, commitlog_store.paths"))
    assert not loaded & {"numpy", "pyarrow", "pyspark", "typer", "rich"}


def test_the_command_is_ready_for_an_interrupt_before_the_long_imports() -> None:
    assert not packages(modules_after("import commitlog_store.cli")) & {"logging", "numpy", "pyarrow", "rich", "typer"}


@pytest.mark.parametrize(("chosen", "used"), [(None, "1"), ("3", "3")])
def test_the_command_starts_no_threads_for_matrices_unless_the_user_wants_them(chosen: str | None, used: str) -> None:
    """OpenBLAS's threads spin when numpy is imported, for a tenth of what a short command takes."""
    script = "import os, sys; sys.argv[1:] = ['--version']; from commitlog_store.cli import main"
    ended = "os.write(1, os.environ['OPENBLAS_NUM_THREADS'].encode())"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if chosen is not None:
        environment["OPENBLAS_NUM_THREADS"] = chosen
    command = [sys.executable, "-c", f"{script}\ntry: main()\nfinally: {ended}"]
    ran = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, timeout=WAIT_LIMIT_S)
    assert ran.stdout.splitlines()[-1] == used


def test_the_connector_is_light_to_discover() -> None:
    """Spark imports every package called pyspark_* on the first use of any Python source, ours or not."""
    loaded = modules_after("import pyspark_commitlog", given="import pyspark.sql.datasource")
    assert not packages(loaded) & {"numpy", "pyarrow", "pandas", "typer", "rich"}
    assert "commitlog_store.reader" not in loaded


def test_planning_loads_neither_the_functions_of_arrow_nor_the_parser_of_filters() -> None:
    """Spark starts a Python process for every run of a stream, and workers that plan batches."""
    loaded = modules_after("import pyspark_commitlog.source.batch_source, pyspark_commitlog.source.stream_planner")
    assert "commitlog_store.reader" in loaded
    assert not loaded & {"lark", "pyarrow.compute", "pyarrow.dataset"}


def test_the_connector_imports_even_when_nothing_it_needs_does() -> None:
    """If importing one package called pyspark_* fails, Spark registers none at all."""
    broken = "\n".join(
        [
            "import sys, pyspark.sql.datasource",
            "for name in ('commitlog_store', 'numpy', 'pyarrow', 'rich', 'typer'):",
            "    for loaded in [key for key in sys.modules if key == name or key.startswith(name + '.')]:",
            "        del sys.modules[loaded]",
            "    sys.modules[name] = None",
        ]
    )
    loaded = modules_after(
        "import pyspark_commitlog", "assert pyspark_commitlog.DefaultSource.name() == 'commitlog'", given=broken
    )
    assert "pyspark_commitlog" in loaded


def test_spark_finds_the_connector() -> None:
    """Spark looks with pkgutil.iter_modules(), which does not see every kind of editable install."""
    assert "pyspark_commitlog" in {module.name for module in pkgutil.iter_modules()}


def test_both_packages_are_typed() -> None:
    import commitlog_store
    import pyspark_commitlog

    for package in (commitlog_store, pyspark_commitlog):
        assert package.__file__ is not None
        assert (Path(package.__file__).parent / "py.typed").is_file()
