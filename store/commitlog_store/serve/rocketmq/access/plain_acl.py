"""PlainAcl: RocketMQ's file of accounts, ``plain_acl.yml``, and whether an account may do what a request needs.

A group's permission stands under the name of its retry topic, ``%RETRY%GROUP``, as with RocketMQ: one table has both.

Source: RocketMQ 4.9.8 ``acl/plain/PlainPermissionManager.java``, ``PlainAccessResource.java``,
``acl/common/Permission.java``, ``common/PlainAccessConfig.java``, ``distribution/conf/plain_acl.yml``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntFlag
from typing import NoReturn

from commitlog_store.errors import InvalidValue
from commitlog_store.paths import RETRY_TOPIC_PREFIX
from commitlog_store.serve.rocketmq.access.block_yaml import Node, parse_block_yaml
from commitlog_store.serve.rocketmq.access.remote_address import RemoteAddresses

# Both keys have more characters than this.
_SHORTEST_KEY = 6
_FILE_NAMES = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_ACCOUNT_NAMES = (
    *("accessKey", "secretKey", "whiteRemoteAddress", "admin"),
    *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),
)


class Permission(IntFlag):
    """What may be done with a topic or a group. 0 is DENY."""

    DENY = 0
    PUB = 4
    SUB = 8


_PERMISSIONS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


class AccessDenied(Exception):
    """Why a request is refused, in RocketMQ's words. It never has a secret."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """One account. ``permissions`` are by topic, and by retry topic for groups."""

    access_key: str
    secret_key: bytes = field(repr=False)
    white_addresses: RemoteAddresses
    is_admin: bool
    default_topic: Permission
    default_group: Permission
    permissions: Mapping[str, Permission]

    def check(self, needs: Mapping[str, Permission]) -> None:
        """``AccessDenied`` names the first topic or group that the account may not use so.

        An admin may use all; one with permissions of its own has these alone, as with RocketMQ.
        """
        if self.is_admin and not self.permissions:
            return
        for resource, needed in needs.items():
            is_group = resource.startswith(RETRY_TOPIC_PREFIX)
            default = self.default_group if is_group else self.default_topic
            if not needed & self.permissions.get(resource, default):
                shown = f"group:{resource.removeprefix(RETRY_TOPIC_PREFIX)}" if is_group else f"topic:{resource}"
                raise AccessDenied(f"No default permission for {shown[:300]}")


@dataclass(frozen=True, kw_only=True)
class PlainAcl:
    """The accounts by access key, and the addresses whose clients need none."""

    accounts: Mapping[str, Account]
    white_addresses: RemoteAddresses

    @classmethod
    def parse(cls, text: str, source: str) -> PlainAcl:
        """``InvalidValue`` names the line, or the account, of ``source``. It never shows a secret."""
        root = parse_block_yaml(text, source)
        if not isinstance(root, dict) or not root.keys() & set(_FILE_NAMES[:2]):
            raise InvalidValue(
                f"{source} has neither accounts nor globalWhiteRemoteAddresses. RocketMQ's conf/plain_acl.yml is an "
                "example of such a file."
            )
        reader = _Reader(source)
        reader.refuse_others(root, _FILE_NAMES, source)
        accounts: dict[str, Account] = {}
        listed = root.get("accounts") or []
        if not isinstance(listed, list):
            reader.refuse("accounts is a list, each item with an accessKey")
        for number, members in enumerate(listed, 1):
            account = reader.account(members, number)
            if account.access_key in accounts:
                reader.refuse(f"the accessKey {account.access_key} is there twice")
            accounts[account.access_key] = account
        white = reader.texts(root, "globalWhiteRemoteAddresses", "the file")
        return cls(accounts=accounts, white_addresses=reader.addresses(white, "globalWhiteRemoteAddresses"))


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source

    def refuse(self, why: str) -> NoReturn:
        raise InvalidValue(f"{self._source}: {why}.")

    def refuse_others(self, members: Mapping[str, Node], known: Collection[str], where: str) -> None:
        for name in members:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]}" if near else f"Known are {', '.join(known)}"
                self.refuse(f"{where} has a member {name}, which RocketMQ does not know. {hint}")

    def account(self, members: Node, number: int) -> Account:
        where = f"account {number}"
        if not isinstance(members, dict):
            self.refuse(f"{where} has no members such as accessKey")
        self.refuse_others(members, _ACCOUNT_NAMES, where)
        access_key, secret_key = (self.text(members, name, where) or "" for name in ("accessKey", "secretKey"))
        if min(len(access_key), len(secret_key)) <= _SHORTEST_KEY:
            self.refuse(f"accessKey and secretKey of {where} both have more than {_SHORTEST_KEY} characters")
        where = f"the account {access_key}"
        admin = self.text(members, "admin", where)
        if admin not in (None, "true", "false"):
            self.refuse(f"admin of {where} is true or false")
        white = self.text(members, "whiteRemoteAddress", where)
        groups = self.permissions(members, "groupPerms", where)
        return Account(
            access_key=access_key,
            secret_key=secret_key.encode(),
            white_addresses=self.addresses([white or ""], f"whiteRemoteAddress of {where}"),
            is_admin=admin == "true",
            default_topic=_permission(self.text(members, "defaultTopicPerm", where)),
            default_group=_permission(self.text(members, "defaultGroupPerm", where)),
            permissions={
                **{RETRY_TOPIC_PREFIX + group: permission for group, permission in groups.items()},
                **self.permissions(members, "topicPerms", where),
            },
        )

    def text(self, members: Mapping[str, Node], name: str, where: str) -> str | None:
        value = members.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(f"{name} of {where} is one text")
        return value

    def texts(self, members: Mapping[str, Node], name: str, where: str) -> list[str]:
        values = members.get(name) or []
        if not isinstance(values, list):
            self.refuse(f"{name} of {where} is a list")
        found = [value for value in values if isinstance(value, str)]
        if len(found) < len(values):
            self.refuse(f"{name} of {where} is a list of texts")
        return found

    def addresses(self, patterns: Sequence[str], where: str) -> RemoteAddresses:
        try:
            return RemoteAddresses(patterns)
        except InvalidValue as error:
            raise InvalidValue(f"{self._source}: {where}: {error}") from None

    def permissions(self, members: Mapping[str, Node], name: str, where: str) -> dict[str, Permission]:
        found = {}
        for text in self.texts(members, name, where):
            items = [item for item in text.split("=") if item]
            if len(items) != 2:
                self.refuse(f"{name} of {where} has items as NAME=PUB|SUB, not {text!r}")
            found[items[0].strip()] = _permission(items[1])
        return found


def _permission(text: str | None) -> Permission:
    """As RocketMQ reads it: what it does not know is DENY."""
    return _PERMISSIONS.get((text or "").strip(), Permission.DENY)
