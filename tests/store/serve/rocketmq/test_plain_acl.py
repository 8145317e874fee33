"""``plain_acl.yml``: what files say, which addresses are white, and what is no such file."""

from __future__ import annotations

import pytest

from commitlog_store.errors import InvalidValue
from commitlog_store.serve.rocketmq.access.block_yaml import parse_block_yaml
from commitlog_store.serve.rocketmq.access.plain_acl import AccessDenied, Account, Permission, PlainAcl
from commitlog_store.serve.rocketmq.access.remote_address import RemoteAddresses

PUB, SUB = Permission.PUB, Permission.SUB
# As in RocketMQ's conf directory; mqadmin writes lists as far left as their names, and dataVersion.
SHIPPED = """
# Licensed to somebody

globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
WRITTEN = """\
dataVersion:
- counter: 3
  timestamp: 1700000000000
accounts:
- accessKey: rocketmq2
  secretKey: '1234''5678'
  whiteRemoteAddress: ''
  admin: true
  topicPerms: []
globalWhiteRemoteAddresses: []
"""


def account(members: str) -> Account:
    """One with these lines, which begin as members of a list's item."""
    text = f"accounts:\n- accessKey: somebody\n  secretKey: 12345678\n{members}"
    return PlainAcl.parse(text, "a file").accounts["somebody"]


def may(one: Account, resource: str, permission: Permission) -> bool:
    try:
        one.check({resource: permission})
    except AccessDenied:
        return False
    return True


def test_the_file_that_rocketmq_ships_is_read() -> None:
    acl = PlainAcl.parse(SHIPPED, "plain_acl.yml")
    assert ("10.10.103.7" in acl.white_addresses, "10.10.104.7" in acl.white_addresses) == (True, False)
    first, second = acl.accounts["RocketMQ"], acl.accounts["rocketmq2"]
    assert (first.secret_key, first.is_admin, second.is_admin) == (b"12345678", False, True)
    assert ("192.168.1.9" in second.white_addresses, "192.168.1.9" in first.white_addresses) == (True, False)
    found = {name: (may(first, name, PUB), may(first, name, SUB)) for name in ("topicA", "topicB", "topicC", "other")}
    assert found == {"topicA": (False,) * 2, "topicB": (True,) * 2, "topicC": (False, True), "other": (False,) * 2}
    groups = [may(first, f"%RETRY%{name}", SUB) for name in ("groupA", "groupB", "groupC", "other")]
    assert groups == [False, True, True, True]


def test_the_file_that_mqadmin_writes_is_read() -> None:
    acl = PlainAcl.parse(WRITTEN, "plain_acl.yml")
    assert acl.accounts["rocketmq2"].secret_key == b"1234'5678"
    assert "127.0.0.1" not in acl.accounts["rocketmq2"].white_addresses
    assert "127.0.0.1" not in acl.white_addresses


def test_a_file_of_white_addresses_alone_is_one() -> None:
    assert not PlainAcl.parse("globalWhiteRemoteAddresses: [127.0.0.1]", "f").accounts


def test_an_admin_with_permissions_has_these_alone() -> None:
    assert may(account("  admin: true\n"), "any", PUB)
    some = account("  admin: true\n  topicPerms:\n  - orders=PUB\n")
    assert (may(some, "orders", PUB), may(some, "any", PUB)) == (True, False)


def test_refusals_are_in_rocketmqs_words() -> None:
    with pytest.raises(AccessDenied, match=r"^No default permission for topic:orders$"):
        account("").check({"orders": PUB})
    with pytest.raises(AccessDenied, match=r"^No default permission for group:billing$"):
        account("").check({"%RETRY%billing": SUB})


@pytest.mark.parametrize("text", ["PUB | SUB", "pub", "ALL", "DENY"])
def test_a_permission_that_rocketmq_does_not_know_is_denied(text: str) -> None:
    assert not may(account(f"  defaultTopicPerm: {text}\n"), "orders", PUB)


SECRET = "s3cr3t-of-ours"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither accounts nor"),
        ("accounts", "Line 1 of f is neither"),
        ("other: 1", "neither accounts nor"),
        ("accounts: yes", "accounts is a list"),
        ("accounts:\n- just text", "account 1 has no members"),
        (f"accounts:\n- accessKey: short\n  secretKey: {SECRET}", "more than 6 characters"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET[:6]}", "more than 6 characters"),
        ("accounts:\n- accessKey: long-enough", "more than 6 characters"),
        (f"accounts:\n- accessKey: long-enough\n  secretkey: {SECRET}", "Did you mean secretKey"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n  admin: maybe", "true or false"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n  topicPerms: PUB", "is a list"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n  topicPerms:\n  - orders", "NAME=PUB"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n  whiteRemoteAddress: 1.2.3", "no pattern"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n\tadmin: true", "Line 4 of f"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: '{SECRET}", "Line 3 of f has quotes"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: *{SECRET}", "Line 3 of f begins with"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}: x", "Line 3 of f has a colon"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n   more: x", "Line 4 of f goes on"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: [{SECRET}, b]", "is one text"),
        (f"accounts:\n- &a\n  accessKey: long-enough\n  secretKey: {SECRET}", "Line 3 of f goes on"),
        (f"accounts:\n- accessKey: long-enough\n  secretKey: {SECRET}\n" * 2, "a second time"),
        ("accounts:\n" + f"- accessKey: long-enough\n  secretKey: {SECRET}\n" * 2, "is there twice"),
        ("a:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 2000)), "nested deeper"),
    ],
)
def test_what_is_no_such_file_is_refused_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(InvalidValue) as error:
        PlainAcl.parse(text, "f")
    assert said in str(error.value)
    assert SECRET not in str(error.value)


def test_an_account_does_not_show_its_secret() -> None:
    assert "12345678" not in repr(account(""))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12345678", "12345678"),
        ("0", "0"),
        ("08901234", "08901234"),
        ("a # comment", "a"),
        ("a#b", "a#b"),
        ("'a # b' # comment", "a # b"),
        ('"a \\" \\\\ b"', 'a " \\ b'),
        ("~", None),
        ("null", None),
        ("Yes", "true"),
        ("off", "false"),
        ("10.10.103.*", "10.10.103.*"),
        ("2::ac5:78:1-200:*", "2::ac5:78:1-200:*"),
        ("192.168.0.{1,2}", "192.168.0.{1,2}"),
        ("x=PUB|SUB", "x=PUB|SUB"),
        ("[]", []),
        ("[a=PUB, b]", ["a=PUB", "b"]),
        ("# comment", None),
    ],
)
def test_scalars_are_the_texts_that_yaml_has(text: str, value: object) -> None:
    assert parse_block_yaml(f"a: {text}", "f") == {"a": value}
    assert parse_block_yaml(f"- {text}", "f") == [value]


@pytest.mark.parametrize(
    "text",
    ["01234567", "1234_5678", "0x12345678", "+1234567", "123456.78", "12345e67", "12:34:56", "2026-11-26", ".inf"],
)
def test_numbers_that_yaml_reads_as_others_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="put it in quotes"):
        parse_block_yaml(f"a: {text}", "f")
    assert parse_block_yaml(f"a: '{text}'", "f") == {"a": text}


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", "8.8.8.8 ::1", ""),
        ("*.*.*.*", "8.8.8.8", "nonsense"),
        ("192.168.1.7", "192.168.1.7 ::ffff:192.168.1.7", "192.168.1.77"),
        ("10.0.0.1, 10.0.0.2", "10.0.0.1 10.0.0.2", "10.0.0.3"),
        ("192.168.1.{1,5}", "192.168.1.1 192.168.1.5", "192.168.1.2 192.168.1.15"),
        ("192.168.*.*", "192.168.0.0 192.168.255.255", "192.169.0.0 ::1"),
        ("192.168.1.10-20", "192.168.1.10 192.168.1.20", "192.168.1.9 192.168.1.21 192.168.1.1"),
        ("192.168.1-2.*", "192.168.2.9", "192.168.3.9"),
        ("10.*.0.1", "10.200.0.1", "10.200.0.2"),
        ("1050:0::5:600:300c:3261", "1050::5:600:300C:3261", "1050::5:600:300c:3262"),
        ("1050::0005:0600:300c:{1,2}", "1050::5:600:300c:2", "1050::5:600:300c:3"),
        ("2::ac5:78:1-200:*", "2::ac5:78:200:ffff 2::ac5:78:1:0", "2::ac5:78:201:0"),
        ("fe80::*", "fe80::1%eth0", "fe81::1"),
        ("", "", "127.0.0.1"),
    ],
)
def test_patterns_of_addresses(pattern: str, inside: str, outside: str) -> None:
    addresses = RemoteAddresses([pattern])
    assert [one for one in inside.split() if one not in addresses] == []
    assert [one for one in outside.split() if one in addresses] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "host",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.20-10",
            "1.2.3.-5",
            "1.2.3.{1,x}",
            "1.2.{1,2}.3",
            "1.2.3.{}",
        ),
        *("1.*.2", "::1::*", "1:2:3:*", "1.2.3.4,", "1.2.3.0-ff", "1.2.3.1_0-20", "g::*", "٣.1.1.*"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidValue, match="no pattern"):
        RemoteAddresses([pattern])
