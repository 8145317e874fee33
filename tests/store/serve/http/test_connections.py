"""Connections of each listener: counted whatever state they are in, bounded, and shown by /metrics."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.serve.connection_counts import ClientCount, ConnectionCount, ConnectionCounts
from commitlog_store.serve.http.front import HttpFront
from commitlog_store.serve.http.listener import HttpLimits
from commitlog_store.serve.http.samples import Samples
from commitlog_store.serve.http.store_samples import StoreSamples
from commitlog_store.serve.listen import TlsFiles
from commitlog_store.serve.rocketmq.codes import RequestCode
from tests.store.follower.certificates import make_certificate
from tests.store.serve.http.fronts import client_of, shown
from tests.store.serve.http.scrapes import scrape, values
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.store.serve.servers import ServeProcess
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("connections") / "store"
    with MessageStore.open(path) as store:
        store.put("orders", b"one")
    return path


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    certificate, key = make_certificate(tmp_path_factory.mktemp("tls"))
    return TlsFiles(certificate=str(certificate), key=str(key))


@contextlib.contextmanager
def _connected(front: HttpFront) -> Iterator[socket.socket]:
    place = front.url.partition("://")[2]
    with socket.create_connection((place.rpartition(":")[0], int(place.rpartition(":")[2])), timeout=60) as made:
        yield made


def _count(front: HttpFront) -> ConnectionCount:
    return front.stores.connections.now()["http"]


def test_half_open_tls_connections_count_among_all_and_are_bounded(store: Path, tls: TlsFiles) -> None:
    limits = HttpLimits(max_connections=2)
    with shown(store, tls=tls, limits=limits) as front, _connected(front), _connected(front):
        wait_for(lambda: _count(front).beginning == 2)
        with _connected(front) as third:
            assert third.recv(1) == b""
        assert _count(front) == ConnectionCount(beginning=2, active=0, idle=0, refused=1)


def test_a_tls_handshake_that_does_not_end_ends_its_connection(store: Path, tls: TlsFiles) -> None:
    with shown(store, tls=tls, limits=HttpLimits(request_s=0.3)) as front:
        with _connected(front) as client:
            assert client.recv(1) == b""
        wait_for(lambda: _count(front) == (0, 0, 0, 0))
        with client_of(front, verify=False) as whole:
            assert whole.get("/healthz").status_code == 200
            wait_for(lambda: _count(front).idle == 1)


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_connection_is_beginning_active_and_idle_in_its_turn(store: Path, tls: TlsFiles, *, is_tls: bool) -> None:
    with shown(store, tls=tls if is_tls else None) as front:
        with client_of(front, verify=False) as client, client.stream("GET", "/live/"):
            wait_for(lambda: _count(front) == (0, 1, 0, 0))
        wait_for(lambda: _count(front) == (0, 0, 0, 0))
        with client_of(front, verify=False) as client:
            client.get("/healthz")
            wait_for(lambda: _count(front) == (0, 0, 1, 0))
        if not is_tls:
            with _connected(front):
                wait_for(lambda: _count(front).beginning == 1)


def test_a_server_with_all_listeners_shows_the_connections_of_each(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "store", "--http", "127.0.0.1:0", "--rocketmq", "127.0.0.1:0") as server:
        place = server.first_line.partition(", and at ")[2].split()[0]
        pages = server.first_line.rpartition(" at http://")[2].split()[0]
        with (
            RemotingClient(place) as asking,
            RemotingClient(place) as silent,
            StoreReader.open(server.url) as reader,
            httpx.Client(base_url=f"http://{pages}", trust_env=False, timeout=60) as client,
        ):
            del silent
            reader.topics()
            data = heartbeat(consumers={"billing": {"orders": "*"}}, producers=["shop"])
            assert asking.ask(RequestCode.HEART_BEAT, {}, orjson.dumps(data)).code == 0

            def shows_all() -> bool:
                found = values(scrape(client), "commitlog_connections", "listener", "state")
                rocketmq = found["rocketmq", "idle"] == 1 and found["rocketmq", "beginning"] == 1
                grpc = found["grpc", "idle"] + found["grpc", "active"] >= 1
                return rocketmq and grpc and found["http", "active"] == 1

            wait_for(shows_all)
            found = scrape(client)
        labels = ("consumer_group", "language", "consume_mode", "protocol_type", "is_system")
        consumer = ("billing", "python", "push", "remoting", "false")
        assert values(found, "rocketmq_consumer_connections", *labels) == {consumer: 1}
        assert values(found, "rocketmq_producer_connections", "language", "protocol_type") == {
            ("python", "remoting"): 1
        }
        assert set(values(found, "commitlog_connections_refused_total", "listener").values()) == {0}
        assert ("pull",) in values(found, "rocketmq_processor_watermark", "processor")
        times = values(found, "rocketmq_rpc_latency_milliseconds_count", "request_code", "response_code", "result")
        assert times["heart_beat", "success", "success"] == 1


def test_requests_that_wait_are_shown_by_processor() -> None:
    counts = ConnectionCounts()
    counts.waiting_requests = lambda: {"pull": 3, "send": 0}
    samples = Samples([], [])
    StoreSamples(None, connections=counts).read_owned(samples)
    found = {labels: value for name, labels, value in samples.values if name == "rocketmq_processor_watermark"}
    assert found == {("pull",): 3, ("send",): 0}


def test_clients_of_many_kinds_are_summed_up_beyond_the_limit() -> None:
    counts = ConnectionCounts()
    many = {(f"group-{number}", "java", "v5_3_3", "push"): number + 1 for number in range(5)}
    counts.clients = lambda: ClientCount({}, many)
    samples = Samples([], [])
    StoreSamples(None, connections=counts, most_lags=2).read_owned(samples)
    found = {labels[0]: value for name, labels, value in samples.values if name == "rocketmq_consumer_connections"}
    assert found == {"group-4": 5, "group-3": 4, "(other)": 6}
