"""The dashboard and the alerts name metrics that the server has; Prometheus accepts them, and they give values."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from commitlog_store import Message, connect
from commitlog_store.serve.http.metrics_table import BASE_LABELS, METRICS, Kind
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from tests.store.serve.rocketmq.brokers import creation_fields
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.store.serve.servers import ServeProcess
from tests.support.local_spark import PROJECT
from tests.support.waiting import wait_for

FOLDER = PROJECT / "examples" / "grafana"
DASHBOARD = FOLDER / "commitlog-dashboard.json"
ALERTS = FOLDER / "commitlog-alerts.yml"
CASES = Path(__file__).with_name("commitlog-alerts-test.yml")
# Prometheus' own, and those of every process.
_OTHERS = {"up", "process_cpu_seconds_total"}
_METRIC = re.compile(r"\b((?:rocketmq|commitlog|process)_\w+|up(?=\{))")
_LABELS = re.compile(r"\b(?:by|without) \(([^)]*)\)|\{([^}]*)\}")
# Nothing in the test has slaves.
_WITHOUT_VALUES = ("commitlog_slave_behind_bytes",)


def board_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def alert_expressions() -> list[str]:
    text = re.sub(r"\s*\n\s+", " ", ALERTS.read_text().replace(">-", ""))
    return re.findall(r" expr: (.*?) (?:for|labels):", text)


EXPRESSIONS = board_expressions() + alert_expressions()


def _series() -> dict[str, set[str]]:
    """The labels of each series that the server may have."""
    found: dict[str, set[str]] = {}
    for metric in METRICS.values():
        labels = {*BASE_LABELS, *metric.labels, "job", "instance"}
        if metric.kind is Kind.HISTOGRAM:
            found |= {
                f"{metric.name}_bucket": labels | {"le"},
                f"{metric.name}_sum": labels,
                f"{metric.name}_count": labels,
            }
        else:
            found[metric.name] = labels
    return found


def test_there_is_something_to_check() -> None:
    assert len(board_expressions()) > 30
    assert len(alert_expressions()) == ALERTS.read_text().count("- alert:")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_and_label_that_is_named_is_one_of_the_server(expression: str) -> None:
    series = _series()
    names = set(_METRIC.findall(_LABELS.sub(lambda one: "" if one[1] else "{", expression))) - {"commitlog"}
    assert names, "an expression names a metric"
    assert names - _OTHERS <= series.keys()
    allowed = set.union({"job", "instance"}, *(series[name] for name in names - _OTHERS))
    for by, matchers in _LABELS.findall(expression):
        labels = {label.strip() for label in by.split(",")} if by else set(re.findall(r"(\w+)\s*(?:=|!)", matchers))
        assert labels <= allowed


def test_the_legends_name_labels_of_their_series() -> None:
    known = set.union(*_series().values())
    legends = re.findall(r"\{\{(\w+)\}\}", DASHBOARD.read_text())
    assert legends
    assert set(legends) <= known


def test_the_board_shows_every_metric_with_rocketmqs_name() -> None:
    shown = " ".join(board_expressions())
    missing = {name for name in METRICS if name.startswith("rocketmq_") and name not in shown}
    # Ready is what waits and is not in flight; the size of a directory is not that of its disk.
    assert missing == {"rocketmq_consumer_ready_messages", "rocketmq_broker_permission", "rocketmq_storage_size_bytes"}


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = set(itertools.product(columns, range(place["y"], place["y"] + place["h"])))
        assert max(columns) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def promtool(*arguments: str | Path, folder: Path = FOLDER) -> str:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    done = subprocess.run(
        ["promtool", *map(str, arguments)], cwd=folder, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_the_alerts_and_the_configuration() -> None:
    assert f"{len(alert_expressions())} rules found" in promtool("check", "rules", ALERTS.name)
    promtool("check", "config", "prometheus.yml")


def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    for file in (ALERTS, CASES):
        shutil.copy(file, tmp_path)
    assert "SUCCESS" in promtool("test", "rules", CASES.name, folder=tmp_path)


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes ``target`` each second, with the alerts, and a client of it."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: Debian has a package")
    text = (FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:8816", target).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(ALERTS, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *("nice", "prometheus", "--config.file=prometheus.yml", f"--storage.tsdb.path={folder / 'data'}"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            wait_for(lambda: _is_ready(process, client, folder))
            yield client
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(process: subprocess.Popen[bytes], client: httpx.Client, folder: Path) -> bool:
    assert process.poll() is None, (folder / "log").read_text()
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def query(client: httpx.Client, expression: str) -> list[Any]:
    """The series of a query of the board, as Grafana sends it."""
    for name, value in (("$cluster", ".*"), ("$node", ".*"), ("$__rate_interval", "1m")):
        expression = expression.replace(name, value)
    answer = client.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", answer
    found: list[Any] = answer["data"]["result"]
    return found


def _use(url: str, rounds: Iterator[int]) -> None:
    """Put, consume, and leave something for every panel."""
    number = next(rounds)
    with connect(url) as store:
        for _ in range(5):
            store.put("orders", b"paid").raise_for_status()
        if number:
            return
        store.put("%DLQ%billing", b"given up").raise_for_status()
        store.put_message(Message(topic="orders", body=b"later", properties={"DELAY": "18"})).raise_for_status()
        in_an_hour = {"TIMER_DELAY_SEC": "3600"}
        store.put_message(Message(topic="orders", body=b"timed", properties=in_an_hour)).raise_for_status()
        half = store.half_messages
        half.commit(half.prepare(Message(topic="orders", body=b"committed"), "payments"))
        half.rollback(half.prepare(Message(topic="orders", body=b"rolled back"), "payments"))
        with store.consumer("billing", "orders") as consumer:
            wait_for(lambda: consumer.poll(2, timeout_s=1))
            consumer.commit()


def test_a_real_prometheus_scrapes_a_real_server_and_every_panel_has_values(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "store", "--http", "127.0.0.1:0", "--rocketmq", "127.0.0.1:0") as server:
        target = server.first_line.rpartition(" at http://")[2].split()[0]
        of_rocketmq = RemotingClient(server.first_line.partition(", and at ")[2].split()[0])
        with of_rocketmq, prometheus(target, tmp_path) as client:
            beat = orjson.dumps(heartbeat(consumers={"billing": {"orders": "*"}}, producers=["shop"]))
            assert of_rocketmq.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation_fields()).code == 0
            group = orjson.dumps({"groupName": "billing"})
            assert of_rocketmq.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).code == 0
            assert (
                of_rocketmq.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"}).code
                == ResponseCode.TOPIC_NOT_EXIST
            )
            rounds = itertools.count()
            missing = [one for one in board_expressions() if not any(name in one for name in _WITHOUT_VALUES)]
            deadline = time.monotonic() + 200
            while missing:
                assert time.monotonic() < deadline, missing
                assert of_rocketmq.ask(RequestCode.HEART_BEAT, {}, beat).code == 0
                _use(server.url, rounds)
                missing = [one for one in missing if not query(client, one)]
                time.sleep(0.3)  # it scrapes once a second
            assert query(client, 'rocketmq_messages_in_total{topic="orders"}')[0]["metric"]["job"] == "commitlog"
            for one in alert_expressions():
                query(client, one)
            targets = client.get("/api/v1/targets").json()["data"]["activeTargets"]
            assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")]
        assert server.stop()[0] == 0
