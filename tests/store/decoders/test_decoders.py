"""Body decoders: each format as JSON, what is wrong with a decoder, and bodies that would end or stop a server."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commitlog_store.decoders.decoder_process import LARGEST_BODY, DecoderProcess
from commitlog_store.decoders.json_values import json_of
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.errors import InvalidValue

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
from tests.store.decoders.schemas import (
    LINKED,
    NOTHINGS,
    ORDER,
    PAID_MS,
    avro_order,
    protobuf_order,
    write_descriptors,
    write_schema,
)

_PLUGIN = """
import os, sys, time

class Decoder:
    def decode(self, body):
        print("on stdout")
        if body == b"end":
            os._exit(7)
        if body == b"sleep":
            time.sleep(60)
        return {"argument": ARGUMENT[0], "body": body.decode()}

ARGUMENT = []

def make(argument):
    ARGUMENT.append(argument)
    return Decoder()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with schemas, and a package that offers a decoder as an installed one does."""
    place = tmp_path_factory.mktemp("decoders")
    write_schema(place / "order.avsc", ORDER)
    write_schema(place / "linked.avsc", LINKED)
    write_schema(place / "nothings.avsc", {"type": "array", "items": "null"})
    (place / "registry").mkdir()
    write_schema(place / "registry" / "7.avsc", ORDER)
    write_schema(place / "registry" / "8.avsc", NOTHINGS)
    write_descriptors(place / "shop.desc")
    (place / "my_decoder.py").write_text(_PLUGIN)
    information = place / "my_decoder-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-decoder\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[commitlog.decoders]\nmine = my_decoder:make\n")
    return place


@pytest.fixture(scope="module")
def decoders(place: Path) -> Iterator[TopicDecoders]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place))
        with TopicDecoders.parse(
            [
                "packed=msgpack",
                f"one=avro:{place}/order.avsc",
                f"many*=avro:{place}/registry",
                f"linked=avro:{place}/linked.avsc",
                f"nothings=avro:{place}/nothings.avsc",
                f"proto=protobuf:{place}/shop.desc:shop.Order",
                "mine=mine:a:b=c",
            ]
        ) as made:
            yield made


def _value(decoders: TopicDecoders, topic: str, body: bytes) -> Any:
    found = decoders.decode(topic, body)
    assert found is not None
    assert found.json is not None, found.problem
    return json.loads(found.json)


def _problem(decoders: TopicDecoders, topic: str, body: bytes) -> str:
    found = decoders.decode(topic, body)
    assert found is not None
    assert found.json is None
    return found.problem


def test_message_pack_is_json_with_text_for_what_json_lacks(decoders: TopicDecoders) -> None:
    when = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)
    body = msgspec.msgpack.encode({"id": 17, 3: b"\xff", "at": when, "of": [msgspec.msgpack.Ext(5, b"\x01"), None]})
    assert _value(decoders, "packed", body) == {
        "id": 17, "3": "ff", "at": "2026-11-28T00:00:00+00:00", "of": [{"extension": 5, "data": "01"}, None],
    }  # fmt: skip
    assert "MessagePack data is malformed" in _problem(decoders, "packed", body + b"\x00")


def test_avro_is_decoded_by_the_schema_of_a_file(decoders: TopicDecoders) -> None:
    paid = dt.datetime.fromtimestamp(PAID_MS / 1000, dt.UTC).isoformat()
    assert _value(decoders, "one", avro_order()) == {"id": 17, "note": "<b>", "paid": paid, "raw": "ff"}
    assert "bytes are left" in _problem(decoders, "one", avro_order() + b"x")
    assert "ends before" in _problem(decoders, "one", avro_order()[:3])


def test_a_directory_has_the_schema_that_a_body_names(decoders: TopicDecoders) -> None:
    assert _value(decoders, "many-1", b"\x00\x00\x00\x00\x07" + avro_order())["id"] == 17
    # The fingerprint of `{"type":"array","items":"null"}` in its canonical form, computed with Avro's own algorithm.
    fingerprint = _crc_64_avro(b'{"type":"array","items":"null"}').to_bytes(8, "little")
    assert _value(decoders, "many-1", b"\xc3\x01" + fingerprint + b"\x02\x00") == [None]
    assert "has no 9.avsc" in _problem(decoders, "many-1", b"\x00\x00\x00\x00\x09" + avro_order())
    assert "names no schema" in _problem(decoders, "many-1", avro_order())


def _crc_64_avro(data: bytes) -> int:
    """As the specification has it, bit by bit."""
    empty = 0xC15D213AA4D7A795
    value = empty
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1) & (1 << 64) - 1)
    return value


def test_protobuf_is_decoded_by_a_message_of_a_descriptor_set(decoders: TopicDecoders, place: Path) -> None:
    body = protobuf_order(f"{place}/shop.desc")
    assert _value(decoders, "proto", body) == {"order_id": 17, "region": "eu"}
    assert _value(decoders, "proto", b"\x48\x01" + body)["(unknown fields)"] == [9]
    assert "DecodeError" in _problem(decoders, "proto", b"\xff\xff")


def test_a_package_of_others_offers_a_decoder_and_may_fail_as_it_likes(decoders: TopicDecoders) -> None:
    assert _value(decoders, "mine", b"x") == {"argument": "a:b=c", "body": "x"}
    assert "UnicodeDecodeError" in _problem(decoders, "mine", b"\xff") or "can't decode" in _problem(
        decoders, "mine", b"\xff"
    )
    assert "ended with code 7" in _problem(decoders, "mine", b"end")
    assert _value(decoders, "mine", b"again")["body"] == "again"


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        pytest.param("packed", b"\x91" * 100_000 + b"\xc0", id="levels of MessagePack"),
        pytest.param("packed", b"\xdd\xff\xff\xff\xff\xc0", id="a list that says it has 2^32 values"),
        pytest.param("packed", b"\xdd\x00\x03\x00\x00" + b"\xc0" * 0x30000, id="200,000 values"),
        pytest.param("linked", b"\x02" * 1_000_000 + b"\x00", id="a million levels of Avro"),
        pytest.param("nothings", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", id="2^63 values without bytes"),
        pytest.param("one", b"\x22" + b"\xfe\xff\xff\xff\x7f" + b"x", id="a text that says it has 16 GiB"),
        pytest.param("packed", b"\xc0" * (LARGEST_BODY + 1), id="a large body"),
    ],
)
def test_a_hostile_body_is_a_problem_and_the_next_one_is_decoded(
    decoders: TopicDecoders, topic: str, body: bytes
) -> None:
    assert _problem(decoders, topic, body)
    assert _value(decoders, "packed", b"\x07") == 7
    assert _value(decoders, "one", avro_order())["id"] == 17


def test_a_process_that_gives_no_answer_is_ended_and_the_next_body_is_decoded() -> None:
    decoder = DecoderProcess("msgpack", "", patience_s=1.0)
    decoder.start()
    process = decoder._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    assert decoder.decode(bytes(LARGEST_BODY)).problem.startswith("it takes more than")
    assert process.returncode == -signal.SIGKILL
    assert decoder.decode(b"\x01").json == "1"
    decoder.close()


def test_a_topic_has_the_first_decoder_that_matches_it(decoders: TopicDecoders) -> None:
    assert decoders.kind_of("many-of-them") == "avro"
    assert decoders.decode("others", b"x") is None
    assert TopicDecoders.parse(["msgpack"]).kind_of("any") == "msgpack"
    late = list(decoders.decode_each([("others", b"x"), ("packed", b"\x07")], seconds=0.0))
    assert late[0] is None
    assert "took 0 s" in late[1].problem if late[1] is not None else False


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("orders=", "TOPIC=KIND:ARGUMENT"),
        ("orders=soap", "No package offers a decoder 'soap'. Decoders are avro, "),
        ("orders=msgpack:x", "takes no argument"),
        ("orders=avro", "avro:DIRECTORY"),
        ("orders=avro:{place}/nowhere.avsc", "nowhere.avsc does not exist"),
        ("orders=avro:{place}/shop.desc", "shop.desc is no Avro schema"),
        ("orders=protobuf:{place}/shop.desc", "protobuf:FILE:MESSAGE"),
        ("orders=protobuf:{place}/shop.desc:shop.Ordr", "has no message shop.Ordr"),
        ("orders=protobuf:{place}/order.avsc:shop.Order", "is no descriptor set"),
        ("orders=protobuf:{place}/nowhere.desc:shop.Order", "cannot be read"),
    ],
)
def test_a_wrong_decoder_is_an_error_that_says_what_is_expected(place: Path, rule: str, problem: str) -> None:
    with pytest.raises(InvalidValue) as raised, TopicDecoders.parse([rule.format(place=place)]):
        pass
    assert problem in str(raised.value)


@pytest.mark.parametrize(("kind", "package"), [("avro:x", "fastavro"), ("protobuf:x:y", "google")])
def test_a_decoder_without_its_packages_names_the_extra(
    kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no', name={package!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    name = kind.partition(":")[0]
    with pytest.raises(InvalidValue, match=rf"pip install 'pyspark-commitlog\[{name}\]'"):
        TopicDecoders.parse([kind]).start()


def test_values_that_json_lacks_are_text_and_others_are_refused() -> None:
    assert json_of({"x": math.nan, b"\x01": {1}, (1, "a"): 2**70}) == (
        '{"x": "nan", "01": [1], "[1, \\"a\\"]": 1180591620717411303424}'
    )
    for wrong, why in (({1: 0, "1": 1}, "two keys"), (object(), "no JSON"), ("x" * (1 << 20), "characters")):
        with pytest.raises(ValueError, match=why):
            json_of(wrong)


def test_the_decoders_load_no_package_before_they_are_used() -> None:
    import subprocess

    script = (
        "import sys, commitlog_store.decoders.topic_decoders\n"
        "assert not {'fastavro', 'google', 'numpy', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
