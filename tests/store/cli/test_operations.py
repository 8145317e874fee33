"""Every command of docs/operations.md runs as it stands, on real stores with real damage, and prints what is shown.

``/data``, ``/backup`` and ``/srv`` are directories of the test; ``tests/support/shown_commands.py`` says how a page
shows commands.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.cli.exit_codes import EXIT_CODES
from tests.store.cli.commands import shell
from tests.store.cli.test_verify import damaged_and_left_open
from tests.store.verify.made_store import damage, files, make_store, message_place
from tests.support import quick_programs
from tests.support.local_spark import PROJECT
from tests.support.shown_commands import matches, steps_of

PAGE = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
PLACES = ("data", "backup", "srv")
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, dict[str, list[str]]]:
    """The page's blocks by heading and language."""
    found: dict[str, dict[str, list[str]]] = {}
    parts = re.split(r"^#{2,3} (.+)$", PAGE, flags=re.MULTILINE)
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        for language, block in _FENCED.findall(text):
            found.setdefault(heading, {}).setdefault(language, []).append(block)
    return found


class Machine:
    """The directories of the page under one of the test, and a shell that has the command."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in PLACES:
            (root / name).mkdir()
        self.store = root / "data" / "store"
        self.backup = root / "backup" / "store"

    def with_paths(self, text: str) -> str:
        return re.sub(rf"(?<![\w/])/({'|'.join(PLACES)})\b", rf"{self.root}/\1", text)

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = shell(self.with_paths(command), *arguments, cwd=self.root)
        done.stdout, done.stderr = (text.replace(str(self.root), "") for text in (done.stdout, done.stderr))
        return done

    def follow(self, heading: str) -> None:
        """Run the section's commands in order."""
        for step in steps_of(sections()[heading]["console"]):
            done = self.run(step.command)
            assert done.returncode == step.exit_code, (step.command, done.stdout, done.stderr)
            if step.shown:
                printed = done.stdout or done.stderr
                assert matches(step.shown, printed), (step.command, step.shown, printed)


def break_a_message(store: Path) -> None:
    """Four bytes in the middle of the log, and the owner was killed: the store does not open."""
    file, place, _ = message_place(store, "orders", 1, 100)
    damage(file, place + 100, b"XXXX")
    (store / "abort").touch()


def cut(machine: Machine) -> None:
    assert machine.run("commitlog repair /data/store --cut-at 126176").returncode == 0


@contextlib.contextmanager
def owner_at_work(store: Path) -> Iterator[None]:
    """Another process that puts a message every 10 ms."""
    program = (
        "import sys, time\n"
        "from commitlog_store import Message, MessageStore\n"
        "with MessageStore.open(sys.argv[1]) as store:\n"
        "    while True:\n"
        "        store.put_message(Message(queue_id=0, topic='orders', body=b'new', keys=['new'])).raise_for_status()\n"
        "        print('put', flush=True)\n"
        "        time.sleep(0.01)\n"
    )
    with quick_programs.Popen([sys.executable, "-c", program, str(store)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"put\n"
        try:
            yield
        finally:
            process.kill()


def whole(machine: Machine) -> None:
    make_store(machine.store)


def broken_beside_a_backup(machine: Machine) -> None:
    make_store(machine.store)
    shutil.copytree(machine.store, machine.backup)
    break_a_message(machine.store)


def broken(machine: Machine) -> None:
    make_store(machine.store)
    break_a_message(machine.store)


def cut_store(machine: Machine) -> None:
    broken(machine)
    cut(machine)


def without_its_end(machine: Machine) -> None:
    make_store(machine.store)
    for file in files(machine.store, "commitlog"):
        if int(file.name) >= 262144:  # the newest one with messages, and those created ahead
            file.unlink()


def without_a_file(machine: Machine) -> None:
    make_store(machine.store)
    files(machine.store, "commitlog")[2].unlink()


def without_queues(machine: Machine) -> None:
    make_store(machine.store)
    shutil.rmtree(machine.store / "consumequeue")
    shutil.rmtree(machine.store / "index")


def with_a_damaged_body(machine: Machine) -> None:
    make_store(machine.store)
    file, place, _ = message_place(machine.store, "orders", 1, 100)
    damage(file, place + 100, b"XXXX")


STORES: dict[str, Callable[[Machine], None]] = {
    "It does not open": without_its_end,
    "Messages are missing": with_a_damaged_body,
    "Topics have vanished": without_queues,
    "Late consumers, overdue messages, full disks": whole,
    "A closed store": whole,
    "Only the messages": whole,
    "Restore": broken_beside_a_backup,
    "One log file": broken_beside_a_backup,
    "Disk full": cut_store,
    "1. Look": broken,
    "3. Salvage into a new store": broken,
    "4. Cut the log before the damage": broken,
    "6. The end of the log is gone": without_its_end,
    "7. Queues or index are missing or damaged": without_queues,
    "Move a store": whole,
    "Health checks": whole,
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("heading", STORES)
def test_the_commands_of_a_section_do_what_the_page_shows(machine: Machine, heading: str) -> None:
    STORES[heading](machine)
    machine.follow(heading)


def test_a_store_in_use_is_assessed(machine: Machine) -> None:
    make_store(machine.store)
    with owner_at_work(machine.store):
        machine.follow("While it is in use")


def test_a_copy_beside_a_running_owner_opens(machine: Machine) -> None:
    make_store(machine.store)
    with owner_at_work(machine.store):
        machine.follow("Beside a running owner")


def test_every_section_with_commands_is_tested() -> None:
    tested = {*STORES, "While it is in use", "Beside a running owner", "5. Put back what a cut has kept"}
    assert {heading for heading, blocks in sections().items() if "console" in blocks} == tested
    languages = {language for blocks in sections().values() for language in blocks}
    assert languages == {"console", "python", "crontab", "sh"}


def test_what_a_cut_has_kept_is_put_back_in_order(machine: Machine) -> None:
    """All messages but the damaged one are in their queues, in the order in which they were put."""
    make_store(machine.store)
    expected = bodies(machine.store)
    break_a_message(machine.store)
    cut(machine)
    machine.follow("5. Put back what a cut has kept")
    del expected["orders", 1][100]
    assert bodies(machine.store) == expected


def bodies(store: Path) -> dict[tuple[str, int], list[bytes]]:
    with StoreReader.open(store) as reader:
        return {
            (queue.topic, queue.queue_id): [
                body
                for batch in reader.read(queue.topic, queue.queue_id, 0, columns=["body"])
                for body in batch["body"].to_pylist()
            ]
            for topic in reader.topics()
            for queue in reader.queues(topic)
        }


def cut_by_opening(machine: Machine) -> None:
    crashed, _ = damaged_and_left_open(machine.root / "made")
    crashed.rename(machine.store)


@pytest.mark.parametrize(
    ("prepare", "said", "command"),
    [
        (whole, "opens:", None),
        (broken, "does not open", "repair /data/store --cut-at"),
        (cut_by_opening, "opens, and opening it cuts its log", "repair /data/store --cut-at"),
        (without_its_end, "does not open", "repair /data/store --accept-lost-log"),
        (without_a_file, "does not open", "salvage /data/store --to"),
    ],
)
def test_the_command_that_repair_names_ends_the_trouble(
    machine: Machine, prepare: Callable[[Machine], None], said: str, command: str | None
) -> None:
    """The cases of the table under "1. Look"."""
    assert f"`{said}`" in PAGE
    prepare(machine)
    looked = machine.run("commitlog repair /data/store")
    assert looked.stdout.startswith(f"/data/store {said}")
    assert looked.returncode == (0 if command is None else 1)
    if command is not None:
        last = looked.stdout.splitlines()[-1].strip()
        assert last.startswith(f"commitlog {command}")
        answer = " --yes" if "--accept-lost-log" in last else ""  # no terminal is here to be asked
        done = machine.run(last.replace("DIRECTORY", "/srv/store") + answer)
        assert done.returncode == ("salvage" in command), done.stderr
        if "salvage" in command:
            machine.run("mv /data/store /data/store.broken && mv /srv/store /data/store")
    assert machine.run("commitlog repair /data/store").returncode == 0
    assert machine.run("commitlog verify /data/store").returncode == 0


def test_the_program_opens_the_store(machine: Machine) -> None:
    make_store(machine.store)
    (program,) = sections()["In a program"]["python"]
    done = machine.run('python3 -c "$1"', machine.with_paths(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Recovered(end=298909, "), "rebuild reads the whole log"


def test_the_lines_for_cron_print_only_what_is_wrong(machine: Machine) -> None:
    make_store(machine.store)
    (block,) = sections()["Health checks"]["crontab"]
    commands = [line.split(maxsplit=5)[5] for line in block.splitlines()]
    assert len(commands) == 2
    for command in commands:
        done = machine.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    shutil.rmtree(machine.store / "consumequeue")
    doctor, verify = (machine.run(command) for command in commands)
    assert doctor.stdout.startswith("WARNING  /data/store")
    assert "queue.missing-message" in verify.stdout


def test_the_plugin_for_nagios_has_a_state_for_each_store(machine: Machine) -> None:
    make_store(machine.store)
    (plugin,) = sections()["Health checks"]["sh"]

    def state(path: Path = machine.store) -> tuple[int, str]:
        done = machine.run(plugin, str(path), "orders")
        assert done.stdout.count("\n") == 1
        return done.returncode, done.stdout.removeprefix("COMMITLOG ").replace(":", " ").split()[0]

    assert state() == (0, "OK")
    assert state(machine.root) == (3, "UNKNOWN")
    shutil.rmtree(machine.store / "consumequeue")
    assert state() == (1, "WARNING")
    files(machine.store, "commitlog")[2].unlink()
    assert state() == (2, "CRITICAL")
    old = Path(shutil.copytree(PROJECT / "tests" / "golden" / "rocketmq-4.9.8-crashed" / "store", machine.backup))
    assert state(old) == (1, "WARNING")
    shutil.rmtree(machine.store)
    cut_store(machine)
    assert state() == (1, "WARNING")


def test_the_page_has_the_exit_codes_of_the_command() -> None:
    for code in (0, 1, 2):
        assert f"| {code} | {EXIT_CODES[code]} |" in PAGE
