"""A token is in no plan, error, page or log of Spark, and in no checkpoint, of the source and of the sink."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import MessageStore
from commitlog_store.serve.tokens import Role, new_token
from tests.store.serve.servers import ServeProcess
from tests.support.spark_programs import SparkPrograms


def test_a_token_is_seen_nowhere(tmp_path: Path, spark_programs: SparkPrograms) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put_messages([{"topic": "orders", "body": b"a", "tags": "b"}] * 8).raise_for_status()
    token = new_token(str(tmp_path / "tokens"), "spark", Role.WRITE)
    wrong = "clt_0000000000000000000000000000000000000000000"
    base = tmp_path / "base"
    base.mkdir()
    with ServeProcess(tmp_path / "store", "--tokens", tmp_path / "tokens", "--access-log") as server:
        module = "tests.connector.token_program"
        ran = spark_programs.run(module, base, server.url, token, wrong, directory=tmp_path)
        assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
        _, said = server.stop()
    found = {"log of Spark": ran.stderr, "log of the server": said}
    for directory in ("seen", "events", "checkpoint", "failed"):
        files = [path for path in (base / directory).rglob("*") if path.is_file()]
        found |= {str(path.relative_to(base)): path.read_text("latin-1") for path in files}
    # What would show the token shows the address.
    for mark in ("seen/", "events/", "log of Spark"):
        assert any(server.url in text for name, text in found.items() if name.startswith(mark)), mark
    assert " INFO " in ran.stderr
    shown = {name for name, text in found.items() for one in (token, wrong) if one in text}
    assert not shown
