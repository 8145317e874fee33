"""/healthz and /readyz: when a process is to be restarted, when it takes work, and who learns why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from commitlog_store import Message
from commitlog_store.config import BrokerRole
from commitlog_store.serve.http.health import Health
from commitlog_store.serve.tokens import Role, new_token
from commitlog_store.store import owned_by
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok
from tests.store.serve.http.fronts import browsing, shown


@pytest.fixture
def sync_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    with Gate.within(monkeypatch, "sync") as gate:
        yield gate


def asked(client: httpx.Client, path: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The status, and what failed, by store and check, with the reason."""
    answer = client.get(path)
    body = answer.json()
    assert body["status"] == ("ok" if answer.status_code == 200 else "failing")
    failed = {
        name: {check["check"]: check.get("reason") for check in checks if not check["ok"]}
        for name, checks in body["stores"].items()
    }
    return answer.status_code, {name: checks for name, checks in failed.items() if checks}


def test_an_open_store_is_healthy_and_ready(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        put_ok(store)
        assert asked(client, "/healthz") == asked(client, "/readyz") == (200, {})
        checks = [check["check"] for check in client.get("/readyz").json()["stores"]["store"]]
        assert checks == ["not halted", "open", "disk", "accepts messages", "dispatch"]


def test_a_halted_store_is_neither_and_says_why(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store, browsing(owned=store) as client:
        sync_gate.fail()
        store.put_message(Message(topic="orders", body=b"x"))
        for path in ("/healthz", "/readyz"):
            status, failed = asked(client, path)
            assert status == 503
            assert "the disk is gone" in failed["store"]["not halted"]


def test_a_full_disk_is_no_reason_to_restart_but_takes_no_work(tmp_path: Path) -> None:
    with open_store(tmp_path, disk_space_warning_level_ratio=0.001) as store, browsing(owned=store) as client:
        assert asked(client, "/healthz") == (200, {})
        status, failed = asked(client, "/readyz")
        assert status == 503
        assert failed["store"].keys() == {"disk"}
        assert "disk_space_warning_level_ratio" in failed["store"]["disk"]


def test_a_store_that_was_set_to_reject_messages_is_not_ready(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        store.set_writable(False)
        assert asked(client, "/healthz") == (200, {})
        assert asked(client, "/readyz") == (
            503,
            {"store": {"accepts messages": "The store was set to reject messages."}},
        )
        store.set_writable(True)
        assert asked(client, "/readyz") == (200, {})


def test_a_replica_is_ready_though_it_rejects_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    with open_store(tmp_path, broker_role=BrokerRole.SLAVE) as store, browsing(owned=store) as client:
        assert not store.writable
        assert asked(client, "/readyz") == (200, {})


def test_dispatch_that_is_behind_is_not_ready(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path) as store, shown(owned=store) as front:
        put_ok(store)
        store.dispatch()
        assert all(check.ok for check in Health(front.stores, most_behind_bytes=0).owned_checks(store))
        # What is appended while dispatch holds still is behind.
        with owned_by(store).engine.reput._lock:
            put_ok(store)
            (late,) = (one for one in Health(front.stores, most_behind_bytes=0).owned_checks(store) if not one.ok)
    assert late.name == "dispatch"
    assert "bytes of the log are not dispatched, more than 0" in late.reason


def test_a_closed_store_is_not_ready(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        store.close()
        status, failed = asked(client, "/readyz")
        assert status == 503
        assert failed["store"]["open"] == "The store is closed."


def test_a_store_that_is_only_read_is_ready_while_it_can_be_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_ok(store)
    with browsing(tmp_path / "store") as client:
        assert asked(client, "/readyz") == (200, {})
        (tmp_path / "store").rename(tmp_path / "away")
        status, failed = asked(client, "/readyz")
        assert status == 503
        assert str(tmp_path / "store") in failed["store"]["readable"]
        assert asked(client, "/healthz") == (200, {}), "another process owns it"


def test_probes_need_no_token_and_learn_no_reasons_without_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_ok(store)
    tokens = str(tmp_path / "tokens.jsonl")
    token = new_token(tokens, "probe", Role.READ)
    with browsing(tmp_path / "store", tokens=tokens) as client:
        (tmp_path / "store").rename(tmp_path / "away")
        assert asked(client, "/readyz") == (503, {"store": {"readable": None}})
        client.headers["authorization"] = f"Bearer {token}"
        status, failed = asked(client, "/readyz")
        assert status == 503
        assert failed["store"]["readable"]
