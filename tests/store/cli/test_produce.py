"""``commitlog produce``: lines become messages, and each failure reports what was put before."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import signal
import subprocess
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.cli import main
from commitlog_store.cli.app import app
from commitlog_store.cli.message_lines import BadLine, Defaults, read_batches
from commitlog_store.cli.options import LineFormat
from commitlog_store.verify.store import verify_store
from tests.store.cli.commands import SCRIPT, lines, plain, script
from tests.support import quick_programs
from tests.support.waiting import WAIT_LIMIT_S

SIZES = ("--mapped-file-size-commit-log", 1 << 16, "--mapped-file-size-consume-queue", 4000)
# RocketMQ's index files take 420 MB.
SMALL_INDEX = ("--max-hash-slot-num", "100", "--max-index-num", "400")


def produce(text: str | bytes, *arguments: object) -> Result:
    data = text.encode() if isinstance(text, str) else text
    return CliRunner().invoke(app, ["produce", *SMALL_INDEX, *(str(argument) for argument in arguments)], input=data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A new store of small files; the first message makes them."""
    result = produce("made", tmp_path / "store", "-t", "made", "--create", *SIZES)
    assert result.exit_code == 0, result.output
    return tmp_path / "store"


def messages(path: Path, topic: str) -> list[dict[str, Any]]:
    return lines("cat", path, topic, "--json")


def test_lines_are_bodies(path: Path) -> None:
    result = produce("one\nzwei größer\r\n\nlast".encode() + b"\n\xff", path, "-t", "t", "--tag", "a", "--key", "k")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.startswith("5 messages put in ")
    found = messages(path, "t")
    assert [row.get("body", row.get("bodyBase64")) for row in found] == ["one", "zwei größer", "", "last", "/w=="]
    assert {(row["tags"], row["keys"]) for row in found} == {("a", "k")}
    assert verify_store(path) == []


def test_a_json_object_gives_every_field(path: Path) -> None:
    rows = [
        {"body": "b", "topic": "orders", "tags": "paid", "keys": ["k1", "k2"], "queueId": 2, "properties": {"p": "v"}},
        {"bodyBase64": base64.b64encode(b"\xff\0").decode(), "keys": "k3", "flag": 7, "shardingKey": "s"},
        {"body": "later", "delayLevel": 3, "tags": None},
    ]
    text = "\n\n".join(json.dumps(row) for row in rows)
    result = produce(text, path, "--ndjson", "-t", "other", "--queue", 5, "--tag", "default")
    assert result.exit_code == 0, result.output
    (first,) = messages(path, "orders")
    assert (first["body"], first["tags"], first["keys"], first["queueId"]) == ("b", "paid", "k1 k2", 2)
    assert first["properties"]["p"] == "v"
    (second,) = messages(path, "other")
    assert (second["bodyBase64"], second["keys"], second["queueId"], second["tags"]) == ("/wA=", "k3", 5, "default")
    with StoreReader.open(path) as reader:
        assert reader.message_at(second["physicalOffset"]).flag == 7
    (third,) = messages(path, "SCHEDULE_TOPIC_XXXX")
    assert third["properties"]["REAL_TOPIC"] == "other"


def test_results_are_printed_as_json_for_programs(path: Path) -> None:
    result = produce("a\nb\nc\n", path, "-t", "t", "--json", "--queue", 1, "--async", "--batch-size", 2)
    assert result.exit_code == 0
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["line"], row["status"], row["queueId"], row["queueOffset"]) for row in found] == [
        (1, "PUT_OK", 1, 0), (2, "PUT_OK", 1, 1), (3, "PUT_OK", 1, 2),
    ]  # fmt: skip
    with StoreReader.open(path) as reader:
        for row, body in zip(found, (b"a", b"b", b"c"), strict=True):
            assert reader.message_by_id(row["msgId"]).body == body
            assert reader.message_at(row["physicalOffset"]).body == body


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "it is not JSON"),
        ("[1]", "expected a JSON object"),
        ('{"boddy": "x"}', "unknown field 'boddy', did you mean 'body'"),
        ('{"body": "x", "queueid": 1}', "did you mean 'queueId'"),
        ('{"tags": "x"}', "found neither"),
        ('{"body": "x", "bodyBase64": "eA=="}', "found both"),
        ('{"body": 7}', "body is a string, not 7"),
        ('{"bodyBase64": "?"}', "bodyBase64 is a string of base64"),
        ('{"body": "x", "queueId": 65536}', "its queueId is 65536; it must be 0 to 65535"),
        ('{"body": "x", "queueId": "1"}', 'queueId is an integer, not "1"'),
        ('{"body": "x", "queueId": true}', "queueId is an integer"),
        ('{"body": "x", "flag": 99999999999999999999}', "flag is an integer"),
        ('{"body": "x", "keys": [1]}', "keys is a string or a list of strings, not [1]"),
        ('{"body": "x", "keys": {}}', "keys is a string or a list"),
        ('{"body": "x", "properties": []}', "properties is an object"),
        ('{"body": "x", "properties": {"a": 1}}', 'properties is an object of strings, not {"a": 1}'),
        ('{"body": "\\ud800"}', "surrogate"),
        ('{"body": "x"} x', "it is not JSON: Extra data at character 15"),
        ('{"body": "x", "properties": {"\\ud800": "x"}}', "surrogate"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_stops_after_the_lines_before_it_were_put(path: Path, line: str, words: str) -> None:
    result = produce(f'{{"body": "good"}}\n\n{line}\n{{"body": "never"}}\n', path, "-t", "t", "--ndjson")
    assert result.exit_code == 1
    said = result.stderr.splitlines()
    assert said[0].startswith("1 message put")
    assert said[1].startswith("commitlog: Line 3: ")
    assert words in said[1]
    assert len(said) == 2
    assert [row["body"] for row in messages(path, "t")] == ["good"]
    assert verify_store(path) == []


def test_topics_that_brokers_take_from_no_producer_are_refused(path: Path) -> None:
    lines = '{"body": "x", "topic": "good"}\n{"body": "x", "topic": "SCHEDULE_TOPIC_XXXX"}\n'
    result = produce(lines, path, "--ndjson")
    assert result.exit_code == 1
    assert "Line 2: RocketMQ writes SCHEDULE_TOPIC_XXXX itself and takes it from no producer" in result.stderr
    assert len(messages(path, "good")) == 1
    result = produce("x", path, "--topic", "SCHEDULE_TOPIC_XXXX")
    assert result.exit_code == 2
    assert "a delayLevel" in plain(result.stderr)


def test_a_topic_of_batch_queues_stops_the_input(path: Path) -> None:
    entry = {"topicName": "special", "attributes": {"queue.type": "BatchCQ"}}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"special": entry}}))
    given = "".join(f'{{"body": "x", "topic": "{topic}"}}\n' for topic in ("plain", "special", "after"))
    result = produce(given, path, "--ndjson")
    assert result.exit_code == 1
    assert "Line 2: MESSAGE_ILLEGAL" in result.stderr
    assert "topic 'special' is kept in batch consume queues" in result.stderr
    assert len(messages(path, "plain")) == 1
    with StoreReader.open(path) as reader:
        assert reader.topics() == ["made", "plain"]


def test_a_queue_that_no_topic_has_is_refused_before_the_first_line(path: Path) -> None:
    """The sink's limit: no consumer looks in a queue above it."""
    for queue, code in ((65_536, 2), (65_535, 0)):
        result = produce("x", path, "-t", "t", "--queue", queue)
        assert result.exit_code == code, result.stderr
    assert [row["queueId"] for row in messages(path, "t")] == [65_535]


def test_a_line_without_a_topic_is_reported(path: Path) -> None:
    result = produce('{"body": "x"}', path, "--ndjson")
    assert result.exit_code == 1
    assert "Line 1: it has no topic" in result.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"body": "b", "queueId": -1}', "The message (topic 't', queue -1): its queueId is -1"),
        ('{"body": "b", "topic": "no/topic"}', "topic"),
        ('{"body": "b", "properties": {"REAL_TOPIC": "x"}}', "REAL_TOPIC"),
        (json.dumps({"body": "b" * (70 << 10)}), "a CommitLog file of the store has room for"),
    ],
    ids=["queue", "topic", "property", "too long for a file"],
)
def test_a_message_that_no_store_accepts_is_reported_and_none_after_it_is_put(
    path: Path, line: str, words: str
) -> None:
    """A corrected input continues from that line, and no message is stored twice or out of order."""
    text = f'{{"body": "a"}}\n{line}\n{{"body": "c"}}\n{line}\n{{"body": "d"}}\n'
    result = produce(text, path, "-t", "t", "--ndjson", "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith("1 message put in ")
    assert "commitlog: Line 2: MESSAGE_ILLEGAL: The " in result.stderr
    assert words in result.stderr
    found = [json.loads(row) for row in result.stdout.splitlines()]
    assert [(row["line"], row["status"]) for row in found] == [(1, "PUT_OK"), (2, "MESSAGE_ILLEGAL")]
    assert found[1]["msgId"] is found[1]["physicalOffset"] is None
    assert [row["body"] for row in messages(path, "t")] == ["a"]
    assert verify_store(path) == []


def test_a_message_that_fits_only_with_its_own_queue_is_put_in_its_turn(path: Path) -> None:
    """The queue's number is a property of a delayed message: which one it gets is known when it is put."""
    longest = 32_767 - sum(len(name) + len(value) + 2 for name, value in (("REAL_TOPIC", "t"), ("DELAY", "1")))
    room = longest - len("REAL_QID") - 3 - len("a") - 2
    rows = [{"body": "first"}, {"body": "l", "delayLevel": 1, "properties": {"a": "x" * room}}, {"body": "last"}]
    result = produce("\n".join(map(json.dumps, rows)), path, "-t", "t", "--ndjson", "--queue", 0, "--json")
    assert (result.exit_code, result.stdout.count("PUT_OK")) == (0, 3), result.output


def test_results_that_cannot_be_printed_stop_the_command_and_are_reported(path: Path) -> None:
    command = f"seq 1 20000 | {SCRIPT} produce {' '.join(SMALL_INDEX)} {path} -t t --json --async | head -1"
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[1]}}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_LIMIT_S,
    )
    result, code = done.stdout.splitlines()
    assert json.loads(result)["line"] == 1
    assert code == "1"
    put, said = done.stderr.splitlines()
    count = int(put.split(" ")[0])
    assert 0 < count < 20_000
    assert f"no line after line {count} was put" in said
    assert len(messages(path, "t")) == count


def test_a_refused_line_is_named_also_where_its_result_cannot_be_printed(path: Path) -> None:
    """The put stopped there, and not at the end of the lines that were put together."""
    given = path.parent / "given"
    given.write_text('{"body": "a"}\n{"body": "b", "queueId": -1}\n{"body": "c"}\n')
    for lines_given, said in (
        ("3", "Line 2: MESSAGE_ILLEGAL: "),
        ("1", "No space left on device), so no line after line 1 "),
    ):
        command = f"head -{lines_given} {given} | {SCRIPT} produce {' '.join(SMALL_INDEX)} {path} -t t --ndjson --json"
        done = subprocess.run(
            ["bash", "-c", f"{command} >/dev/full"], capture_output=True, text=True, check=False, timeout=WAIT_LIMIT_S
        )
        assert (done.returncode, done.stderr.startswith("1 message put in ")) == (1, True)
        assert said in done.stderr
    assert len(messages(path, "t")) == 2


def test_standard_input_that_is_closed_is_reported_in_a_sentence(path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{SCRIPT} produce {path} -t t <&-"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "commitlog: Standard input is closed; messages are read from there, one per line.\n"


def test_standard_output_that_is_closed_is_not_a_failure(path: Path) -> None:
    command = f"echo x | {SCRIPT} produce {' '.join(SMALL_INDEX)} {path} -t t --json >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=WAIT_LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert [row["body"] for row in messages(path, "t")] == ["x"]


def test_an_interrupt_while_the_command_is_being_imported_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "commitlog_store.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "commitlog_store.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-t", "no/topic"],
        ["-t", "t", "--batch-size", "0"],
        ["-t", "t", "--queue", "-1"],
        ["-t", "t", "--ndjson", "--json", "--format", "xml"],
        ["-t", "t", "--create", "--mapped-file-size-consume-queue", "7"],
        ["-t", "t", "--mapped-file-size-commit-log", "100000"],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_code_2(path: Path, arguments: list[str]) -> None:
    result = produce("x", path, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "produce [OPTIONS] {PATH}" in result.stderr


def test_a_store_is_created_only_on_request(tmp_path: Path) -> None:
    for where in (tmp_path / "new", tmp_path):
        done = script("produce", where, "-t", "t", input="x\n")
        assert done.returncode == 2
        assert "--create" in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_store_with_an_owner_is_refused_in_one_sentence(path: Path) -> None:
    with MessageStore.open(path) as store:
        done = script("produce", path, "-t", "t", "--lock-timeout", "0.1", input="x\n")
        assert (done.returncode, done.stdout) == (1, "")
        assert "owns it" in done.stderr
        assert done.stderr.count("\n") == 1
        assert store.put_message(Message(queue_id=0, topic="t", body=b"x")).ok


def test_messages_are_put_as_they_come_and_an_interrupt_closes_the_store(path: Path) -> None:
    """A pipe that stays open must not hold messages back until a batch is full."""
    command = [SCRIPT, "produce", *SMALL_INDEX, str(path), "-t", "t", "--json"]
    process = quick_programs.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for body in ("first", "second"):
            process.stdin.write(body + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["status"] == "PUT_OK"
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_LIMIT_S)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("2 messages put")
    assert "Traceback" not in err
    assert not (path / "abort").exists()
    assert verify_store(path) == []
    assert [row["body"] for row in messages(path, "t")] == ["first", "second"]


def test_the_output_of_another_command_can_be_piped_in(path: Path) -> None:
    command = f"seq 1 5000 | {SCRIPT} produce {' '.join(SMALL_INDEX)} {path} -t numbers --queue 0 --async"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("5000 messages put")
    assert [row["body"] for row in messages(path, "numbers")] == [str(number) for number in range(1, 5001)]
    assert verify_store(path) == []


class _Endless(io.RawIOBase):
    """A stream whose last line never ends, a little at a time."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._given = 0

    def read(self, size: int = -1) -> bytes:
        data, self._head = self._head or b"x" * 4096, b""
        self._given += len(data)
        assert self._given < 20 << 20, "it reads on and on"
        return data


@pytest.mark.parametrize("line_format", LineFormat)
def test_a_line_without_an_end_is_refused_and_does_not_fill_the_memory(line_format: LineFormat) -> None:
    stream: Any = _Endless(b'{"body": "first"}\n')
    batches = read_batches(stream, line_format, Defaults(topic="t"), 10, max_message_size=1 << 20)
    assert next(batches).numbers == [1], "what stands before it is put"
    with pytest.raises(BadLine, match=r"Line 2: it has more than [0-9]+ bytes"):
        next(batches)


def test_a_line_that_comes_in_many_pieces_is_one() -> None:
    stream = io.BytesIO(b"y" * 3_000_000 + b"\nz")
    batches = read_batches(stream, LineFormat.LINES, Defaults(topic="t"), 10)
    assert [row["body"] for batch in batches for row in batch.rows] == [b"y" * 3_000_000, b"z"]


def test_on_a_terminal_it_says_what_it_waits_for(path: Path) -> None:
    main_side, terminal = pty.openpty()
    command = [SCRIPT, "produce", *SMALL_INDEX, str(path), "-t", "t"]
    with quick_programs.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "one per line (lines). End with Ctrl-D." in process.stderr.readline()
        os.write(main_side, b"typed\n\x04")
        assert process.wait(timeout=WAIT_LIMIT_S) == 0
        assert process.stderr.read().startswith("1 message put")
    os.close(terminal)
    os.close(main_side)
    assert [row["body"] for row in messages(path, "t")] == ["typed"]


def test_a_delay_is_a_level_or_its_time(path: Path) -> None:
    lines = [{"body": "a", "delayLevel": "10s"}, {"body": "b", "delayLevel": 3}, {"body": "c", "delayLevel": 90}]
    result = produce("\n".join(map(json.dumps, lines)), path, "--ndjson", "-t", "orders")
    assert result.exit_code == 1
    assert "Line 3: MESSAGE_ILLEGAL" in plain(result.stderr)
    assert "its delayLevel is 90; it must be one of the levels 1 (1s), 2 (5s)" in plain(result.stderr)
    assert [row["queueId"] for row in messages(path, "SCHEDULE_TOPIC_XXXX")] == [2, 2]
