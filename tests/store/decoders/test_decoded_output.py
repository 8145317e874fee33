"""Decoded bodies where they are shown: commands, pages, downloads, and `commitlog serve --decode`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from commitlog_store import MessageStore
from commitlog_store.decoders.topic_decoders import TopicDecoders
from tests.store.cli.commands import ended, lines, plain, run
from tests.store.serve.http.fronts import browsing

_BROKEN = b"\xc1broken"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoded") / "store"
    with MessageStore.open(path) as store:
        store.put("orders", msgspec.msgpack.encode({"id": 17, "note": "<script>alert(1)</script>"}), queue_id=0)
        store.put("orders", _BROKEN, queue_id=0)
        store.put("texts", b"plain")
    return path


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[httpx.Client]:
    with (
        TopicDecoders.parse(["ord*=msgpack"]) as decoders,
        browsing(store, headers={"accept": "text/html"}, decoders=decoders) as client,
    ):
        yield client


def test_lines_of_json_have_the_decoded_body_beside_it(store: Path) -> None:
    done = ended("cat", store, "orders", "texts", "--decode", "orders=msgpack", "--json", "--columns", "queueId,body")
    first, second, third = (json.loads(line) for line in done.stdout.splitlines())
    assert first.keys() == {"queueId", "bodyBase64", "decoded"}
    assert first["decoded"]["id"] == 17
    assert second.keys() == {"queueId", "bodyBase64", "notDecoded"}
    assert (third.keys(), third["body"]) == ({"queueId", "body"}, "plain")
    assert "The bodies of 1 message were not decoded. The first: " in done.stderr
    assert done.returncode == 0


def test_other_output_has_the_decoded_body_in_its_place(store: Path) -> None:
    decode = ("--decode", "orders=msgpack")
    assert run("cat", store, "orders", "-n", 1, *decode, "--format", r"%s\n").startswith('{"id": 17')
    assert '{"id": 17' in run("cat", store, "orders", "-n", 1, *decode)
    assert '{"id": 17' in run("get", store, 0, *decode)
    (row,) = lines("get", store, 0, *decode, "--json")
    assert row["decoded"]["id"] == 17
    assert run("tail", store, "texts", *decode).endswith("plain\n")
    done = ended("get", store, 0, *decode, "--body")
    assert (done.returncode, "leave --decode out" in plain(done.stderr)) == (2, True)


def test_a_wrong_decoder_ends_a_command_and_a_server(store: Path) -> None:
    for command in (("cat", store, "orders"), ("serve", store, "--http", "127.0.0.1:0", "--read-only")):
        done = ended(*command, "--decode", "orders=soap")
        assert done.returncode != 0
        assert "No package offers a decoder 'soap'" in done.stderr
    assert ended("serve", store, "--decode", "msgpack").returncode == 2


def test_a_page_shows_the_decoded_body_first_and_never_as_markup(client: httpx.Client) -> None:
    page = client.get("/messages/0").text
    assert "Decoded: msgpack" in page
    assert "&#34;note&#34;: &#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;" in page
    assert "<script>alert" not in page
    assert "82 a2 69 64" in client.get("/messages/0?as=hex").text
    assert "{&#34;id&#34;: 17" in client.get("/messages?topic=orders").text


def test_a_body_that_is_not_decoded_is_shown_as_before_with_the_reason(client: httpx.Client) -> None:
    found = client.get("/messages/download?topic=orders").text
    first, second = (json.loads(line) for line in found.splitlines())
    assert first["decoded"]["id"] == 17
    page = client.get(f"/messages/{second['physicalOffset']}").text
    assert "Not decoded (msgpack): " in page
    assert "c1 62 72 6f" in page
