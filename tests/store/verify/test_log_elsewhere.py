"""Assessment of stores whose log lies in another directory: it is that of the same store in one directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig, Verdict, assess_store, repair_store, store_metadata
from commitlog_store.errors import LogLost, LogNotFound, LogShort, NotAStore
from commitlog_store.verify.assessment import Assessment
from commitlog_store.verify.store import verify_store
from tests.store.verify.made_store import damage, flip, make_store, message_place

Harm = Callable[[Path], None]


def log_files(log: Path) -> list[Path]:
    return sorted(log.iterdir())


def nothing(_log: Path) -> None:
    pass


def middle_file_deleted(log: Path) -> None:
    log_files(log)[1].unlink()


def newest_file_deleted(log: Path) -> None:
    """Without the file that was made ahead, which has no record yet."""
    *_, newest = (file for file in log_files(log) if any(file.read_bytes()))
    for file in log_files(log):
        if file >= newest:
            file.unlink()


def all_deleted(log: Path) -> None:
    for file in log_files(log):
        file.unlink()


def bytes_overwritten(log: Path) -> None:
    damage(log_files(log)[0], 20_000, bytes(300))


def moved(store: Path, log: Path) -> MessageStoreConfig:
    """Move the log to another directory, and give the settings that name it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    (store / "commitlog").rename(log)
    return MessageStoreConfig(store_path_commit_log=str(log))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def comparable(found: Assessment) -> dict[str, object]:
    """What an assessment says, with the log's directory, and commands, as for a store in one directory."""

    def placed(text: str) -> str:
        return text.replace(found.paths.for_shell, found.path).replace(
            found.paths.commit_log, f"{found.path}/commitlog"
        )

    return {
        "verdict": found.verdict,
        "log": (found.log_files, found.log_start, found.log_end),
        "topics": found.topics,
        "opening": (found.opening.kind, placed(found.opening.reason)),
        "findings": [(one.check, placed(one.path), one.offset, placed(one.message)) for one in found.findings],
    }


@pytest.mark.parametrize(
    "harm",
    [nothing, middle_file_deleted, newest_file_deleted, all_deleted, bytes_overwritten],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("deep", [False, True])
def test_a_log_elsewhere_is_assessed_as_one_in_the_store(harm: Harm, deep: bool, path: Path, tmp_path: Path) -> None:
    harm(path / "commitlog")
    expected = comparable(assess_store(path, deep=deep))
    log = tmp_path / "disk" / "log"
    found = assess_store(path, deep=deep, config=moved(path, log))
    assert comparable(found) == expected
    assert (found.path, found.paths.commit_log) == (str(path), str(log))


@pytest.mark.parametrize("harm", [middle_file_deleted, newest_file_deleted], ids=lambda one: one.__name__)
def test_next_steps_name_the_logs_directory(harm: Harm, path: Path, tmp_path: Path) -> None:
    log = tmp_path / "the disk" / "log"
    config = moved(path, log)
    harm(log)
    quick = assess_store(path, config=config)
    assert quick.verdict is Verdict.DOES_NOT_OPEN
    assert quick.next_steps == [
        f"commitlog repair {path} --commit-log '{log}'",
        f"commitlog doctor --deep {path} --commit-log '{log}'",
    ]


def test_salvage_as_a_next_step_takes_the_logs_directory(path: Path, tmp_path: Path) -> None:
    file, at, _ = message_place(path, "orders", 1, 3)
    flip(file, at + 95)  # in its body
    deep = assess_store(path, deep=True, config=moved(path, tmp_path / "log"))
    assert (deep.verdict, deep.lost) == (Verdict.DAMAGED, 1)
    assert deep.next_steps == [f"commitlog salvage {tmp_path}/log"]


def test_a_damaged_queue_is_not_damage_of_a_log_whose_directory_holds_the_store(path: Path, tmp_path: Path) -> None:
    config = MessageStoreConfig(store_path_commit_log=str(tmp_path))
    for file in log_files(path / "commitlog"):
        file.rename(tmp_path / file.name)
    shutil.rmtree(path / "index")
    assert assess_store(path, config=config).verdict is Verdict.WARNING


@pytest.mark.parametrize("named", [False, True], ids=["not named", "named wrong"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_log_that_is_not_there_is_one_verdict_and_commit_log_a_next_step(
    named: bool, deep: bool, path: Path, tmp_path: Path
) -> None:
    moved(path, tmp_path / "log")
    wrong = MessageStoreConfig(store_path_commit_log=str(tmp_path / "other")) if named else None
    found = assess_store(path, deep=deep, config=wrong)
    assert found.verdict is Verdict.DOES_NOT_OPEN
    assert isinstance(found.opening.refusal, LogLost)
    assert found.next_steps[0] == f"commitlog doctor {path} --commit-log DIR"
    assert "Mount or restore the log" in found.opening.reason
    assert repair_store(path, config=wrong).loses


def test_a_log_on_a_disk_that_is_not_mounted_does_not_open_as_the_owner_says(path: Path, tmp_path: Path) -> None:
    moved(path, tmp_path / "log")
    found = assess_store(path, config=MessageStoreConfig(store_path_commit_log=str(tmp_path / "disk" / "log")))
    assert found.verdict is Verdict.DOES_NOT_OPEN
    assert isinstance(found.opening.refusal, LogNotFound)
    assert found.next_steps[0] == f"commitlog doctor {path} --commit-log DIR"


def test_a_file_in_place_of_the_logs_directory_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    config = MessageStoreConfig(store_path_commit_log=str(tmp_path / "file"))
    for deep in (False, True):
        with pytest.raises(NotAStore, match="should be the directory of the log"):
            assess_store(path, deep=deep, config=config)


def test_the_table_findings_is_of_the_log_elsewhere(path: Path, tmp_path: Path) -> None:
    config = moved(path, tmp_path / "log")
    assert store_metadata(path, "findings", store_path_commit_log=tmp_path / "log").num_rows == 0
    middle_file_deleted(tmp_path / "log")
    rows = store_metadata(path, "findings", store_path_commit_log=tmp_path / "log").to_pylist()
    assert [row["message"] for row in rows] == [one.message for one in verify_store(path, config=config)]


def test_the_errors_of_an_owner_name_the_command_with_the_logs_directory(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = moved(path, log)
    newest_file_deleted(log)
    with pytest.raises(LogShort) as caught:
        MessageStore.open(path, config)
    assert f"Restore the newest files of {log} from a copy" in str(caught.value)
    assert f"commitlog repair {path} --commit-log {log} --accept-lost-log" in str(caught.value)
