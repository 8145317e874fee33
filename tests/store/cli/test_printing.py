"""How ``cat``, ``tail``, ``get`` and ``query`` choose and print messages: filters, formats, columns, terminals."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from commitlog_store import MessageFilter, StoreReader
from commitlog_store.queries import scan
from tests.store.cli.commands import EXPECTED, SCRIPT, ended, lines, on_a_terminal, plain, run
from tests.support import quick_programs
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S


@pytest.fixture
def shop(tmp_path: Path) -> StoreBuilder:
    """Two topics in turns, with tags and keys."""
    builder = StoreBuilder(tmp_path / "shop")
    for number in range(4):
        builder.append(
            "orders",
            number % 2,
            [f"order {number}".encode()],
            tags=("new", "paid")[number % 2],
            keys=[f"k{number} all"],
        )
        builder.append("payments", 0, [f"payment {number}".encode()], tags="paid", more=f"UNIQ_KEY\x01u{number}\x02")
    builder.append("refunds", 0, [b"\xff\0\n"], tags="")
    return builder


def bodies(*arguments: object) -> list[str]:
    return [row["body"] for row in lines(*arguments, "--json")]


def test_cat_merges_topics_and_patterns_in_the_order_of_the_log(shop: StoreBuilder) -> None:
    mixed = [text for number in range(4) for text in (f"order {number}", f"payment {number}")]
    assert bodies("cat", shop.path, "payments", "orders") == mixed
    assert bodies("cat", shop.path, "*[rt]s", "-n", 8) == mixed
    assert bodies("cat", shop.path, "order?", "orders") == mixed[::2]
    assert bodies("tail", shop.path, "orders", "payments", "-n", 3) == mixed[-3:]


def test_a_topic_that_is_misspelled_is_answered_with_the_one_meant(shop: StoreBuilder) -> None:
    for command in ("cat", "tail"):
        done = ended(command, shop.path, "odrers")
        assert done.returncode == 1
        assert "Topic 'odrers' has no consume queue" in done.stderr
        assert done.stderr.endswith("Did you mean 'orders'?\n")
    done = ended("cat", shop.path, "x*")
    assert done.returncode == 1
    assert done.stderr.endswith("matches 'x*'. It has orders, payments, refunds.\n")
    assert "Did you mean 'orders'" in ended("query", shop.path, "k", "-t", "order").stderr


def test_filters_by_tag_key_and_body(shop: StoreBuilder) -> None:
    assert bodies("cat", shop.path, "orders", "--tag", "new") == ["order 0", "order 2"]
    assert bodies("cat", shop.path, "orders", "--tag", "new || paid") == [f"order {number}" for number in range(4)]
    assert bodies("cat", shop.path, "orders", "--tag", "none") == []
    assert bodies("cat", shop.path, "orders", "payments", "--key", "k1", "--key", "u2") == ["order 1", "payment 2"]
    assert bodies("cat", shop.path, "orders", "--key", "k") == []
    assert bodies("cat", shop.path, "*", "--grep", r"r [12]$") == ["order 1", "order 2"]
    assert bodies("cat", shop.path, "orders", "--tag", "new", "--grep", "order", "-n", 1) == ["order 0"]
    assert ended("cat", shop.path, "orders", "--grep", "(").returncode == 2


def test_filters_by_a_condition_on_properties(shop: StoreBuilder) -> None:
    assert bodies("cat", shop.path, "*", "--filter", "UNIQ_KEY IN ('u1', 'u3')") == ["payment 1", "payment 3"]
    assert bodies("cat", shop.path, "*", "--filter", "TAGS = 'new' AND KEYS CONTAINS '2'") == ["order 2"]
    assert bodies("cat", shop.path, "*", "--filter", "KEYS IS NULL", "--tag", "paid", "-n", 1) == ["payment 0"]
    assert bodies("cat", shop.path, "orders", "--filter", "TRUE", "--grep", "3") == ["order 3"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--filter", "TAGS >", "filter 'TAGS >', at its end: expected a property"),
        ("--filter", "", "expected an expression"),
        ("--tag", "||", "expected tags separated by ||"),
        ("--key", "a b", "expected keys without spaces, found 'a b'"),
    ],
)
def test_a_bad_filter_is_wrong_usage(shop: StoreBuilder, option: str, value: str, message: str) -> None:
    done = ended("cat", shop.path, "orders", option, value)
    assert done.returncode == 2
    assert message in plain(done.stderr)


def test_rare_matches_of_long_queues_are_merged_in_the_order_of_the_log(tmp_path: Path) -> None:
    """A queue is searched piece by piece, so that one without a match holds up no other."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=64 << 20, queue_file_units=300_000)
    for chunk in range(4):
        for queue_id, step in ((0, 7_001), (1, 50_000), (2, 10**9), (3, 1)):
            count = 60_000 if step > 1 else 100
            tags = ["rare" if (row + chunk) % step == 0 else "often" for row in range(count)]
            builder.append("t", queue_id, [b"x"] * count, tags=tags)
    builder.append("t", 4, [b"x"])
    with StoreReader.open(builder.path) as reader:
        wanted = scan.ranges(reader, ["t"])
        read: list[int] = []
        tables = scan.merged(reader, wanted, ["tags"], MessageFilter.parse(tags="rare"), read.append)
        places = [place for table in tables for place in table.column("physicalOffset").to_pylist()]
        assert sum(read) == scan.count_of(wanted)
        expected = [
            batch.column("physicalOffset").to_pylist()
            for queue_id in range(5)
            for batch in reader.read("t", queue_id, 0, columns=["physicalOffset"], filter="TAGS = 'rare'")
        ]
    assert len(places) > 400
    assert places == sorted(place for batch in expected for place in batch)


def test_body_prints_the_bytes_of_bodies_and_nothing_else(shop: StoreBuilder) -> None:
    command = [SCRIPT, "cat", str(shop.path), "refunds", "--body"]
    done = quick_programs.run(command, capture_output=True, check=True, timeout=WAIT_LIMIT_S)
    assert done.stdout == b"\xff\0\n"
    assert run("cat", shop.path, "orders", "--body", "-n", 2) == "order 0order 1"
    place = lines("cat", shop.path, "orders", "--json")[1]["physicalOffset"]
    assert run("get", shop.path, place, "--body") == "order 1"


def test_format_strings_are_those_of_kcat(shop: StoreBuilder) -> None:
    form = r"%t/%q@%o %k %s\n"
    assert (
        run("cat", shop.path, "orders", "-n", 2, "--format", form)
        == "orders/0@0 k0 all order 0\norders/1@0 k1 all order 1\n"
    )
    assert run("cat", shop.path, "payments", "-n", 1, "--format", r"%p %g %u %S %T %%\x41\t") == (
        f"0 paid u0 9 {FIRST_STORE_TIME + 1} %A\t"
    )
    (row,) = lines("cat", shop.path, "payments", "-n", 1, "--json", "--columns", "storeTimestamp,msgId,physicalOffset")
    assert run("cat", shop.path, "payments", "-n", 1, "--format", "%d %i %O") == " ".join(
        str(row[name]) for name in ("storeTimestamp", "msgId", "physicalOffset")
    )
    assert run("cat", shop.path, "payments", "-n", 1, "--format", "%h") == "TAGS=paid,UNIQ_KEY=u0"
    for wrong in ("%z", r"\q", "%"):
        done = ended("cat", shop.path, "orders", "--format", wrong)
        assert done.returncode == 2
        assert "is not known" in plain(done.stderr)


def test_columns_choose_what_is_printed(shop: StoreBuilder) -> None:
    assert lines("cat", shop.path, "orders", "-n", 1, "--json", "--columns", "queueOffset, sysFlag,body") == [
        {"queueOffset": 0, "sysFlag": 0, "body": "order 0"}
    ]
    assert (
        run("cat", shop.path, "orders", "-n", 1, "--columns", "topic,tags,body,uniqKey") == "orders\tnew\torder 0\t-\n"
    )
    done = ended("cat", shop.path, "orders", "--columns", "boddy")
    assert done.returncode == 2
    assert "Did you mean 'body'?" in plain(done.stderr)


def test_csv_has_names_and_the_values_of_json(shop: StoreBuilder) -> None:
    for topics in (["orders"], ["refunds"], ["orders", "refunds"]):
        rows = list(csv.DictReader(io.StringIO(run("cat", shop.path, *topics, "-o", "csv"))))
        for row, expected in zip(rows, lines("cat", shop.path, *topics, "-o", "json"), strict=True):
            assert row.pop("bodyBase64") == expected.pop("bodyBase64", "")
            assert row.pop("body") == expected.pop("body", "")
            assert json.loads(row.pop("properties")) == expected.pop("properties")
            assert row == {name: "" if value is None else str(value) for name, value in expected.items()}
    assert run("cat", shop.path, "orders", "-n", 0, "-o", "csv").startswith("topic,queueId,queueOffset,")
    done = ended("cat", shop.path, "orders", "--json", "-o", "csv")
    assert (done.returncode, done.stdout) == (2, "")


def test_json_of_every_message_is_what_rocketmq_read(golden_533: Path) -> None:
    """Texts with quotes, control characters and other scripts, empty bodies, and bodies that are not text."""
    topics = sorted({message["topic"] for message in EXPECTED["message"] if message["topic"] != "packed"})
    found = lines("cat", golden_533, *topics, "--json", "--columns", "topic,physicalOffset,keys,properties,body")
    expected = {m["physicalOffset"]: m for m in EXPECTED["message"] if m["topic"] != "packed"}
    assert [row["physicalOffset"] for row in found] == sorted(expected)
    for row in found:
        message = expected[row["physicalOffset"]]
        assert (row["topic"], row["properties"]) == (message["topic"], message["properties"])
        body = row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])
        assert body == base64.b64decode(message["body"])


def test_json_escapes_every_character(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    text = "".join(map(chr, [*range(256), 0x2028, 0x1F600])) + '\\"\\n"'
    builder.append("t", 0, [text.encode(), b"", b"plain"], tags=text.replace("\x01", "").replace("\x02", ""))
    builder.append("t", 0, [b"\xff" + text.encode(), text.encode()])
    rows = [json.loads(line) for line in run("cat", builder.path, "t", "--json").split("\n")[:-1]]
    assert [row.get("body") for row in rows] == [text, "", "plain", None, text]
    assert base64.b64decode(rows[3]["bodyBase64"]) == b"\xff" + text.encode()
    assert rows[0]["tags"] == rows[0]["properties"]["TAGS"] == text.replace("\x01", "").replace("\x02", "")


def test_lines_are_cut_to_the_terminal_unless_they_are_wanted_in_full(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x" * 300, "宽".encode() * 100])
    cut = on_a_terminal(70, "cat", builder.path, "t").splitlines()
    assert len(cut) == 2
    assert all(line.endswith("…") and len(line) <= 70 for line in cut)
    assert "x" * 300 in on_a_terminal(70, "cat", builder.path, "t", "--full")
    assert "x" * 300 in run("cat", builder.path, "t")


def test_info_fits_eighty_columns_and_shortens_names_on_a_terminal_only(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    long = "a_very_long_name_of_a_topic_" * 4 + "end"
    for topic in (long, "orders"):
        builder.append(topic, [0, 1], [b"x"] * 20)
    for options in ([], ["--queues"], ["--sizes"]):
        shown = on_a_terminal(80, "info", builder.path, *options).splitlines()
        rows = [line for line in shown if "…" in line and "end" in line]
        assert len(rows) == (2 if "--queues" in options else 1)
        assert all(len(line.rstrip()) <= 80 for line in shown[1:])
    assert long in run("info", builder.path)
    assert long in on_a_terminal(250, "info", builder.path)


def test_get_finds_a_message_by_its_unique_key_in_any_topic(golden_533: Path) -> None:
    with_key = [m for m in EXPECTED["message"] if "UNIQ_KEY" in m["properties"]]
    assert with_key
    for message in with_key[::101]:
        key = message["properties"]["UNIQ_KEY"]
        if message["topic"] == "SCHEDULE_TOPIC_XXXX":
            continue
        for options in ([], ["--topic", message["topic"]]):
            (row,) = lines("get", golden_533, key, *options, "--json")
            assert row["physicalOffset"] == message["physicalOffset"]
    done = ended("get", golden_533, "C0A80109000018B4AAC2000000000000")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not in the index of any of the 7 topics" in done.stderr
    assert "Did you mean 'orders'" in ended("get", golden_533, "k", "--topic", "order").stderr


def test_get_prints_the_chosen_columns(golden_533: Path) -> None:
    (row,) = lines("get", golden_533, 0, "--columns", "sysFlag,storeHost", "-o", "json")
    assert list(row) == ["sysFlag", "storeHost"]
    text = run("get", golden_533, 0, "--columns", "queueId,storeHost")
    assert [line.split() for line in text.splitlines()] == [["queueId", "0"], ["storeHost", row["storeHost"]]]


@pytest.mark.parametrize("command", ["verify --topics", "salvage", "offset-at 2h", "get 0"])
def test_tables_on_a_narrow_terminal_are_folded_and_not_cut(command: str, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("a-topic-with-a-long-name", [0, 1], [b"x" * 100] * 3)
    builder.append("orders", 0, [b"a body of several words"] * 20)
    name, *options = command.split()
    shown, piped = on_a_terminal(40, name, builder.path, *options), run(name, builder.path, *options)
    letters, wanted = (Counter(re.sub(r"\s|\d+\.\d s", "", text)) for text in (shown, piped))
    assert letters == wanted


def test_info_on_a_narrow_terminal_keeps_its_columns(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 3)
    heading, row = on_a_terminal(40, "info", builder.path).splitlines()[-2:]
    assert heading.split("  ")[0] == "topic"
    assert row.split()[:5] == ["orders", "2", "0", "2", "3"]
