"""Requests to a broker with access control: their signature, its refusals by name, and no secret in any text."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import LogFollower
from commitlog_store.errors import AccessRefused, InvalidValue, ReadFailed
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.follower.remoting_config import SlaveSynchronize
from commitlog_store.replication.peer import parse_address
from tests.store.follower.test_remoting_config import ANSWERS
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import WAIT_LIMIT_S

SECRET, TOKEN = "se cret:ä", "tok=en"
KEYS = f"""
# RocketMQ's tools.yml
accessKey: rocketmq2
secretKey: "{SECRET}"
namesrvAddr: 10.0.0.7:9876
"""


def write_keys(path: Path, text: str = KEYS) -> Path:
    file = path / "tools.yml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_signature_is_rocketmqs() -> None:
    """Of RocketMQ's own ``AclSignerTest``."""
    assert AccessKeys("RocketMQ", "12345678").signed_fields() == {
        "AccessKey": "RocketMQ",
        "Signature": "IUc8rrO/0gDch8CjObLQsW2rsiA=",
    }


def test_every_request_has_the_accounts_keys(tmp_path: Path) -> None:
    keys = AccessKeys.read(write_keys(tmp_path, f"accessKey = me\nsecretKey='{SECRET}'\nsecurityToken: {TOKEN}\n"))
    (tmp_path / "config").mkdir()
    with ScriptedBroker(dict(ANSWERS)) as broker:
        SlaveSynchronize(str(tmp_path), parse_address(broker.address), keys, lambda _: None).run_once()
        asked = [one["extFields"] for one in broker.asked]
    signature = base64.b64encode(hmac.new(SECRET.encode(), b"me" + TOKEN.encode(), hashlib.sha1).digest()).decode()
    assert asked == [{"AccessKey": "me", "SecurityToken": TOKEN, "Signature": signature}] * 5
    assert SECRET not in repr(keys)
    assert TOKEN not in repr(keys)


@pytest.mark.parametrize(
    "refusal",
    [
        (1, "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=rocketmq2"),
        (16, "User:rocketmq2 has no permission"),
    ],
    ids=["4.x", "5.x"],
)
@pytest.mark.parametrize("with_keys", [True, False])
def test_a_refusal_ends_it_by_name_and_shows_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refusal: tuple[int, str], with_keys: bool
) -> None:
    keys = write_keys(tmp_path) if with_keys else None
    whose = "the access key 'rocketmq2'" if with_keys else "no access keys"
    with ScriptedBroker({**ANSWERS, 28: refusal}) as broker:
        with pytest.raises(AccessRefused, match=f"{refusal[1]}.*with {whose}") as caught:
            LogFollower("127.0.0.1:1", tmp_path / "mirror", config_from=broker.address, access_keys=keys)
        assert len(broker.asked) == 1
    assert not caught.value.may_pass
    assert not (tmp_path / "mirror").exists()
    assert SECRET not in f"{caught.value!r} {caplog.text}"


def test_what_an_account_may_not_copy_ends_a_follower_at_its_begin_only(tmp_path: Path) -> None:
    """Later, keys may be changed at the broker for a while; the log is followed without them."""
    no = (16, "no permission")
    (tmp_path / "config").mkdir()
    with ScriptedBroker({**ANSWERS, 43: no}) as broker:
        copier = SlaveSynchronize(str(tmp_path), parse_address(broker.address), None, lambda _: None)
        with pytest.raises(AccessRefused):
            copier.run_once()
        broker.answers[43] = ANSWERS[43]
        copier.run_once()
        assert copier.error is None
        broker.answers[43] = no
        assert copier.run_once() == 10.0
        assert isinstance(copier.error, AccessRefused)


def test_a_running_follower_ends_when_its_account_may_not_copy(tmp_path: Path) -> None:
    answers: dict[int, Any] = {**ANSWERS, 28: b'{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}'}
    with (
        ScriptedBroker(answers | {43: (16, "no permission")}) as broker,
        LogFollower("127.0.0.1:1", tmp_path / "mirror", config_from=broker.address) as follower,
        pytest.raises(AccessRefused, match="refused request 43"),
    ):
        follower.wait_for(1, timeout_s=WAIT_LIMIT_S)


@pytest.mark.parametrize(
    "text", ["", f"secretKey: {SECRET}\n", f"accessKey: a\nsecretkey: {SECRET}\n", "accessKey: a\nsecretKey:\n"]
)
def test_a_file_without_both_keys_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidValue, match=r"tools.yml has no (accessKey|secretKey)") as caught:
        AccessKeys.read(write_keys(tmp_path, text))
    assert SECRET not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match="nowhere"):
        AccessKeys.read(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"secretKey: \xff\xfe")
    with pytest.raises(InvalidValue, match="not UTF-8") as caught:
        AccessKeys.read(tmp_path / "binary")
    assert caught.value.__cause__ is None
    with pytest.raises(InvalidValue, match="give config_from"):
        LogFollower("127.0.0.1:1", tmp_path / "mirror", access_keys=write_keys(tmp_path))
