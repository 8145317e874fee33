"""``testing.rocketmq_broker`` and the fixture of pytest: a RocketMQ that a test starts, asks, and stops."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import InvalidValue, StoreClosed
from commitlog_store.format.message_id import decode_message_id
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.testing import rocketmq_broker
from tests.store.owner.owned_store import rows
from tests.store.serve.rocketmq.remoting_client import RemotingClient, records
from tests.support.clean_store import assert_clean
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_clients_and_python_have_the_same_store(tmp_path: Path) -> None:
    with rocketmq_broker(tmp_path) as broker, RemotingClient(broker.address) as client:
        sent = client.send("orders", b"of a client")
        broker.store.put("orders", b"of Python", queue_id=0)
        broker.store.dispatch()
        bodies = [record.body for record in records(client.pull("orders", 0, 0))]
        assert bodies == [b"of a client", b"of Python"]
        assert [row["body"] for row in rows(broker.store)] == bodies
        place = decode_message_id(sent.fields["msgId"])
        assert (bytes(place.host), place.port) == (bytes([127, 0, 0, 1]), broker.port), "where clients ask for it"
        (viewed,) = records(client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place.physical_offset}))
        assert viewed.body == b"of a client"
    assert_clean(tmp_path)


def test_a_stopped_broker_comes_back_at_its_port_with_its_messages(tmp_path: Path) -> None:
    with rocketmq_broker(tmp_path) as broker:
        with RemotingClient(broker.address) as client:
            assert client.send("orders", b"kept").code == 0
            broker.stop()
            with pytest.raises(OSError):  # noqa: PT011 - a reset, or the stream's end
                client.send("orders", b"too late")
        with pytest.raises(ConnectionRefusedError):
            RemotingClient(broker.address)
        with pytest.raises(StoreClosed):
            broker.store.put("orders", b"too late")
        broker.stop()
        with rocketmq_broker(tmp_path, port=broker.port) as again, RemotingClient(again.address) as client:
            assert again.address == broker.address
            wait_for(lambda: records(client.pull("orders", 0, 0)))
            assert [record.body for record in records(client.pull("orders", 0, 0))] == [b"kept"]
    assert_clean(tmp_path)


def test_a_port_that_is_taken_is_an_error_that_leaves_no_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(InvalidValue, match=f"cannot listen on 127.0.0.1:{port}"),
            rocketmq_broker(tmp_path, port=port),
        ):
            pass
    assert not list(tmp_path.iterdir())


def test_a_store_that_another_program_owns_frees_the_port(tmp_path: Path) -> None:
    with rocketmq_broker(tmp_path / "free") as broker:
        port = broker.port
    with MessageStore.open(tmp_path / "owned"):
        with pytest.raises(Exception, match="owned"), rocketmq_broker(tmp_path / "owned", port=port):
            pass
        with rocketmq_broker(tmp_path / "free", port=port) as broker:
            assert broker.port == port


def test_settings_are_those_of_a_store(tmp_path: Path) -> None:
    with rocketmq_broker(tmp_path, message_delay_level="1s 2s", default_topic_queue_nums=2) as broker:
        assert broker.store.config.delay_levels_ms == (1_000, 2_000)
        assert broker.store.config.default_topic_queue_nums == 2
    with pytest.raises(InvalidValue, match="message_delay_level"), rocketmq_broker(tmp_path, message_delay_levels="1s"):
        pass


def run_pytest(directory: Path, program: str, *arguments: str) -> str:
    """What a run of pytest prints over one file of tests, in a process and a project of its own."""
    (directory / "test_program.py").write_text(program, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={directory / 'tmp'}", *arguments],
        cwd=directory,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_pytest_has_the_fixture_where_the_package_is_installed(tmp_path: Path) -> None:
    """Each test has a broker of its own; one that fails leaves nothing that the next one would see."""
    program = """
from tests.store.serve.rocketmq.remoting_client import RemotingClient

addresses = []

def test_that_fails(rocketmq_broker):
    with RemotingClient(rocketmq_broker.address) as client:
        assert client.send("orders", b"one").code == 0
    addresses.append(rocketmq_broker.address)
    assert False

def test_after_it(rocketmq_broker):
    assert rocketmq_broker.store.reader().topics() == []

def test_that_stops_it(rocketmq_broker):
    rocketmq_broker.stop()
"""
    said = run_pytest(tmp_path, program)
    assert "1 failed, 2 passed" in said, said
    assert "rocketmq_broker" in run_pytest(tmp_path, program, "--fixtures", "-q")


def test_pytest_without_the_fixture_imports_no_code_of_the_store(tmp_path: Path) -> None:
    """Every run of pytest loads the plugin, also that of projects which want something else of the package."""
    program = """
import sys

def test_modules():
    ours = [name for name in sys.modules if name.startswith("commitlog_store.")]
    assert ours == ["commitlog_store.pytest_plugin"]
    assert not {"numpy", "pyarrow", "asyncio", "msgspec"} & sys.modules.keys()
"""
    said = run_pytest(
        tmp_path, program, "-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:timeout", "-p", "no:anyio"
    )
    assert "1 passed" in said, said


def test_a_projects_own_fixture_of_that_name_goes_before(tmp_path: Path) -> None:
    program = """
import pytest

@pytest.fixture
def rocketmq_broker():
    return "its own"

def test_it(rocketmq_broker):
    assert rocketmq_broker == "its own"
"""
    assert "1 passed" in run_pytest(tmp_path, program)
