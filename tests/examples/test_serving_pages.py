"""The Python of the pages on servers, archives and decoders runs as it stands, at addresses in place of theirs.

A block for Spark gets a session that checks the options, and reads and writes nothing: tests/connector has real ones.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, StoreReader, connect, store_metadata
from commitlog_store.decoders.body_decoder import BodyDecoder
from commitlog_store.serve.listen import TlsFiles
from commitlog_store.serve.tokens import Role, new_token
from pyspark_commitlog import DefaultSource
from pyspark_commitlog.options.write import parse_stream_write_options
from tests.examples.test_readme import blocks_of
from tests.store.follower.certificates import make_certificate
from tests.store.owner.owned_store import small
from tests.store.serve.servers import served
from tests.support.local_spark import PROJECT


class _Spark:
    """A session, a frame, and their readers and writers at once. ``done`` has the addresses that were given."""

    def __init__(self, options: dict[str, str] | None = None, done: list[str] | None = None) -> None:
        self._options = options or {}
        self.done = [] if done is None else done

    @property
    def readStream(self) -> _Spark:
        return _Spark(done=self.done)

    writeStream = readStream

    def selectExpr(self, *_: str) -> _Spark:
        return self

    def format(self, name: str) -> _Spark:
        assert name == "commitlog"
        return self

    def option(self, name: str, value: object) -> _Spark:
        # A writer keeps the options that it is given; so does a reader.
        self._options[name.lower()] = str(value)
        return self

    def load(self, path: str) -> None:
        DefaultSource(self._options | {"path": path}).schema()
        self.done.append(path)

    def start(self) -> None:
        self.done.append(parse_stream_write_options(self._options).path)


def _run(
    page: str, replaced: dict[str, str], *, before_each: Callable[[], object] = lambda: None, **names: Any
) -> tuple[list[dict[str, Any]], _Spark]:
    """Run each Python block of a page by itself, with some texts replaced and these ``names``.

    The names that each block has in the end, and the session of all.
    """
    spark = _Spark()
    text = "\f".join(blocks_of((PROJECT / "docs" / page).read_text(encoding="utf-8")))
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    found: list[dict[str, Any]] = []
    for number, block in enumerate(text.split("\f")):
        given = {"__name__": "page", "spark": spark, "events": spark, **names}
        before_each()
        exec(compile(block, f"{page}, block {number}", "exec"), given)
        found.append(given)
    assert found
    return found, spark


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with several closed log files."""
    with MessageStore.open(tmp_path / "store", small(mapped_file_size_commit_log=4 << 10)) as owner:
        for number in range(40):
            owner.put("orders", b"%d" % number * 60, queue_id=0, tags="paid")
    return tmp_path / "store"


def test_archives(store: Path, tmp_path: Path) -> None:
    addresses = {"s3://bucket": f"file://{tmp_path}/bucket", "/data/": f"{tmp_path}/"}
    ((names,), _) = _run("archives.md", addresses)
    assert names["report"].added
    with StoreReader.open(tmp_path / "restored") as restored:
        archived = restored.queue_info("orders", 0).max_offset
    assert 0 < archived < 40, "the last file is open"


def test_reading_archives(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run("archives.md", {"s3://bucket": f"file://{tmp_path}/bucket", "/data/": f"{tmp_path}/"})
    capsys.readouterr()
    url = f"archive+file://{tmp_path}/bucket"
    addresses = {"s3://bucket": url, "/data/": f"{tmp_path}/", "/var/cache/commitlog": f"{tmp_path}/cache"}
    found, spark = _run("reading-archives.md", addresses)
    assert spark.done == [f"{url}/orders", f"{tmp_path}/store"]
    printed = capsys.readouterr().out
    assert "QueueInfo(topic='orders', queue_id=0, min_offset=0, max_offset=40)" in printed
    assert found[0]["batch"].num_rows
    assert list((tmp_path / "cache").rglob("*-0"))


@pytest.fixture
def owned(store: Path) -> Iterator[MessageStore]:
    with MessageStore.open(store) as owner:
        yield owner


def test_serving(
    owned: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other hosts of the page are this one, with TLS and a token; polls do not wait for messages."""
    certificate, key = make_certificate(tmp_path)
    token = new_token(str(tmp_path / "tokens.jsonl"), "reader", Role.READ)
    (tmp_path / "token").write_text(token)
    certificate.rename(tmp_path / "ca.crt")
    tls = TlsFiles(certificate=str(tmp_path / "ca.crt"), key=str(key))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMMITLOG_TLS_ROOT_CERTIFICATES", "ca.crt")
    with served(owned.path, owned=owned) as url, served(owned.path, tls=tls, tokens="tokens.jsonl") as elsewhere:
        replaced = {
            "grpc://127.0.0.1:8815": url,
            "grpc+tls://store.example.org:8815": elsewhere,
            "/etc/commitlog/token": f"{tmp_path}/token",
            '"clt_..."': repr(token),
            "timeout_s=10": "timeout_s=0",
        }
        with connect(url) as remote:
            table = pa.table({"body": ["of a table"]})
            # Polls that do not wait find what the blocks before have put.
            found, spark = _run("serving.md", replaced, before_each=owned.dispatch, store=remote, table=table)
        found[-1]["reader"].close()
        (batch,) = store_metadata(url, "batches").to_pylist()
    assert (batch["application"], batch["version"], batch["rows"]) == ("orders-loader", 7, 1)
    assert spark.done == ["grpc://10.0.0.5:8815", elsewhere]
    printed = capsys.readouterr().out
    assert "b'paid 12.50'" in printed
    assert "b'of a table'" in printed
    assert "OK" in printed


def test_decoders() -> None:
    ((names,), _) = _run("decoders.md", {})
    decoder: BodyDecoder = names["make_decoder"]("")
    assert decoder.decode(zlib.compress(json.dumps({"amount": 7}).encode())) == {"amount": 7}
    with pytest.raises(ValueError, match="it takes no argument"):
        names["make_decoder"]("x")
