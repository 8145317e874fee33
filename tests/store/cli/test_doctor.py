"""``commitlog doctor``: the page, JSON, the line for Nagios, limits, and exit codes."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, commit_group_offsets
from commitlog_store.cli.doctor_limits import parse_limits
from tests.store.cli.commands import ended, lines, run, script, shell
from tests.store.retention.small_stores import Clock, store_clock
from tests.store.verify.made_store import damage, files, make_store, message_place
from tests.store.verify.test_assessment import delete_newest, newest_file
from tests.support.programs import run_program


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "a store"))


def test_a_whole_store_is_ok(golden_533: Path) -> None:
    page = run("doctor", golden_533)
    assert page.splitlines()[0] == f"OK  {golden_533}"
    assert "no loss is known; records were not read" in page
    assert page.splitlines()[-1].split() == ["next", "commitlog", "doctor", "--deep", str(golden_533)]
    deep = run("doctor", "--deep", golden_533)
    assert "none lost" in deep
    assert "next" not in deep


def test_the_page_fits_80_columns_and_its_commands_can_be_pasted(path: Path) -> None:
    damage_file = files(path, "commitlog")[1]
    damage_file.unlink()
    done = script("doctor", path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[0] == f"DOES NOT OPEN  {path}"
    assert "195 lost" in done.stdout
    assert "queue 1: 53 to 104" in done.stdout
    words_of_paths = str(path).split()
    for line in done.stdout.splitlines()[1:]:
        assert len(line) <= 80 or any(word in line for word in words_of_paths), line
    command = next(line for line in done.stdout.splitlines() if line.startswith("next"))[4:].strip()
    assert shlex.split(command) == ["commitlog", "repair", str(path)]
    assert shell(command).returncode == 1


def test_json_has_the_same_names_quick_and_deep(path: Path) -> None:
    (quick,), (deep,) = lines("doctor", path, "--json"), lines("doctor", "--deep", path, "-o", "json")
    names = {
        "path", "verdict", "deep", "aborted", "log", "queues", "indexFiles", "checkpoint", "mark", "batches", "opening",
        "found", "lost", "unreadable", "topics", "findings", "limits", "nextSteps", "seconds", "archiveHold",
    }  # fmt: skip
    assert set(quick) == set(deep) == names
    assert (quick["found"], deep["found"], deep["verdict"], deep["lost"]) == (None, 900, "OK", 0)
    delete_newest(path)
    quick, deep = (json.loads(ended("doctor", path, "--json", *more).stdout) for more in ([], ["--deep"]))
    assert quick["lost"] == deep["lost"] == 112
    lost = {one["topic"]: one["lostOffsets"] for one in deep["topics"] if one["lost"]}
    assert {one["topic"]: one["lostOffsets"] for one in quick["topics"]} == lost
    assert {one["found"] for one in quick["topics"]} == {None}, "no message was counted"
    assert quick["opening"]["kind"] == deep["opening"]["kind"] == "refused"


def test_csv_has_a_line_for_each_finding(path: Path) -> None:
    delete_newest(path)
    done = ended("doctor", path, "-o", "csv")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "severity,check,path,offset,topic,queueId,queueOffset,message"
    assert len(done.stdout.splitlines()) > 1


def test_the_missing_newest_file_is_named(path: Path) -> None:
    newest = newest_file(path)
    delete_newest(path)
    for more in ([], ["--deep"]):
        text = " ".join(ended("doctor", path, *more).stdout.split())
        assert f"{newest} is missing. Restore the newest files from a copy." in text


def test_nagios_gets_one_line_and_its_own_exit_codes(path: Path, tmp_path: Path) -> None:
    done = ended("doctor", path, "--nagios")
    assert done.returncode == 0
    assert done.stdout == (
        f"COMMITLOG OK - {path} OK: no loss is known; records were not read | lost=0;;0 unreadable=0;;0\n"
    )
    done = ended("doctor", path, "--nagios", "--warn", "disk=0,lag=5", "--warn", "overdue=60s")
    assert done.returncode == 1
    assert done.stdout.startswith("COMMITLOG WARNING - ")
    assert "overdue=0s;60;" in done.stdout
    assert ended("doctor", path, "--nagios", "--critical", "disk=0%").returncode == 2
    missing = ended("doctor", tmp_path / "nowhere", "--nagios")
    assert (missing.returncode, missing.stdout.count("\n")) == (3, 1)
    assert missing.stdout.startswith("COMMITLOG UNKNOWN - ")
    wrong = ended("doctor", path, "--nagios", "--warn", "dsik=1")
    assert (wrong.returncode, wrong.stdout[:17]) == (3, "COMMITLOG UNKNOWN")
    delete_newest(path)
    done = ended("doctor", path, "--nagios")
    assert (done.returncode, done.stdout.count("\n")) == (2, 1)
    assert "lost=112;;0" in done.stdout


def test_nagios_says_one_level_and_all_reasons(path: Path) -> None:
    line = ended("doctor", path, "--nagios", "--critical", "disk=0%").stdout
    assert line.startswith(f"COMMITLOG CRITICAL - {path} CRITICAL: ")
    assert "WARNING" not in line
    (path / "config" / "topics.json").write_bytes(b'{"half')
    line = ended("doctor", path, "--nagios", "--warn", "disk=0%").stdout
    assert line.startswith(f"COMMITLOG WARNING - {path} WARNING: ")
    assert "topics.json" in line
    assert "of the disk of" in line
    delete_newest(path)
    line = ended("doctor", path, "--nagios", "--critical", "disk=0%").stdout
    assert line.startswith(f"COMMITLOG CRITICAL - {path} DOES NOT OPEN: at least 112 messages lost; ")
    assert "is missing" in line
    assert "of the disk of" in line


@pytest.mark.parametrize(
    "wrong",
    [
        ["--config", "nowhere.conf"],
        ["-o", "json"],
        ["--json"],
        ["--no-such-option"],
        ["--warn", "dsik=1"],
        ["--commit-log", ""],
        ["a second path"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_unknown_to_nagios(path: Path, wrong: list[str]) -> None:
    """Exit code 2, that of wrong usage elsewhere, is CRITICAL to Nagios."""
    done = ended("doctor", path, "--nagios", *wrong)
    assert (done.returncode, done.stdout.count("\n")) == (3, 1)
    assert done.stdout.startswith("COMMITLOG UNKNOWN - ")
    assert ended("doctor", "--nagios").returncode == 3


def test_nagios_gets_one_line_and_one_bar_whatever_a_path_holds(path: Path, tmp_path: Path) -> None:
    """What follows a bar is performance data, and a second line is another output."""
    done = ended("doctor", path.rename(tmp_path / "a|path\nwith both"), "--nagios")
    assert (done.returncode, done.stdout.count("\n"), done.stdout.count("|")) == (0, 1, 1)
    done = ended("doctor", tmp_path / "a|b\nc", "--nagios")
    assert (done.returncode, done.stdout.count("\n"), done.stdout.count("|")) == (3, 1, 0)


def test_a_limit_whose_value_is_not_known_is_not_too_much(path: Path) -> None:
    (path / "config" / "consumerOffset.json").write_bytes(b'{"half')
    page = ended("doctor", path, "--warn", "lag=5").stdout
    assert "(not known)" in page
    assert "(too much)" not in page


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("lagg=5", "Did you mean 'lag'?"),
        ("lag", "give lag=MESSAGES, disk=SHARE"),
        ("lag=many", "expected a number of messages"),
        ("disk=85", "expected a share, 0.85 or 85%"),
        ("overdue=soon", "expected a time such as 60s"),
        ("overdue=90", "expected a time such as 60s"),
    ],
)
def test_a_wrong_limit_is_refused_with_the_list(path: Path, limit: str, words: str) -> None:
    done = ended("doctor", path, "--warn", limit)
    assert done.returncode == 2
    assert words.replace(" ", "") in "".join(done.stderr.split()).replace("│", "")


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("1h30m", 5400), ("1w", 604_800), ("7D", 604_800)])
def test_overdue_takes_lengths_of_time_as_other_options_do(text: str, seconds: int) -> None:
    assert parse_limits([f"overdue={text}"]) == {"overdue": seconds}


def test_limits_warn_of_lag_a_full_disk_and_overdue_messages(path: Path) -> None:
    commit_group_offsets(path, "billing", {("orders", 0): 100, ("orders", 1): 240, ("orders", 2): 240})
    lag = 140
    assert ended("doctor", path, "--warn", f"lag={lag}").returncode == 0
    done = ended("doctor", path, "--warn", f"lag={lag - 1},overdue=1m,disk=100%")
    assert done.returncode == 1
    assert done.stdout.startswith("WARNING  ")
    assert f"group billing is {lag} messages behind (too much)" in done.stdout
    assert "no delayed message is overdue" in done.stdout
    (limit,) = json.loads(ended("doctor", path, "--json", "--warn", "lag=1").stdout)["limits"]
    assert (limit["name"], limit["value"], limit["warn"], limit["exceeded"]) == ("lag", lag, 1, True)


def test_a_known_lag_is_critical_beside_one_that_is_not_known(path: Path) -> None:
    commit_group_offsets(path, "billing", {("orders", 0): 100, ("orders", 1): 240, ("orders", 2): 240})
    commit_group_offsets(path, "audit", {("audit", 0): 0})
    shutil.rmtree(path / "consumequeue" / "audit")
    done = ended("doctor", path, "--nagios", "--critical", "lag=100")
    assert done.returncode == 2
    assert done.stdout.startswith("COMMITLOG CRITICAL - ")
    assert "group billing is 140 messages behind; lag is not known for audit: 'groups lag' says why" in done.stdout
    done = ended("doctor", path, "--nagios", "--critical", "lag=140")
    assert done.returncode == 1, "the lag of audit may be above it"
    (limit,) = json.loads(ended("doctor", path, "--json", "--critical", "lag=140").stdout)["limits"]
    assert (limit["value"], limit["atLeast"], limit["exceeded"]) == (140, True, True)


def test_an_overdue_delayed_message_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ages_s = {"noted within seconds": 10, "overdue": 60}
    for state, age_s in ages_s.items():
        config = MessageStoreConfig(schedule_enable=False)
        with store_clock(Clock(time.time() - age_s)), MessageStore.open(path / state, config) as store:
            store.put_message(Message(topic="orders", body=b"x", delay_level=1)).raise_for_status()
    done = ended("doctor", path / "noted within seconds", "--warn", "overdue=0s")
    assert (done.returncode, "no delayed message is overdue" in done.stdout) == (0, True), "a live broker is no later"
    assert ended("doctor", path / "overdue", "--warn", "overdue=30s").returncode == 1
    assert ended("doctor", path / "overdue", "--warn", "overdue=1h").returncode == 0


def test_beside_an_owner_it_says_that_the_next_opening_is_not_known(path: Path) -> None:
    with MessageStore.open(path):
        done = ended("doctor", path)
        assert done.returncode == 0
        assert "what its next opening would do is not known yet" in " ".join(done.stdout.split())


def test_an_unreadable_message_is_counted_apart(path: Path) -> None:
    file, place, _ = message_place(path, "orders", 2, 130)
    damage(file, place + 100, b"XXXX")
    assert ended("doctor", path).returncode == 0, "it does not read records, and says so"
    done = ended("doctor", "--deep", path)
    assert done.returncode == 1
    assert "899 found, 1 lost, 1 of them unreadable" in done.stdout
    assert "queue 2: 130" in done.stdout


def test_a_path_that_is_not_a_store_ends_with_code_2(tmp_path: Path) -> None:
    done = script("doctor", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("commitlog: ")


def test_its_start_does_not_import_the_readers() -> None:
    """They take as long to import as all that it needs."""
    program = "import sys, commitlog_store.cli.doctor; print('commitlog_store.reader' in sys.modules)"
    assert run_program("-c", program, timeout=60).stdout == "False\n"
