"""A client with an account, which signs as RocketMQ's ``AclClientRPCHook`` does."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

from tests.store.serve.rocketmq.remoting_client import RemotingClient


class SignedClient(RemotingClient):
    """Signs each request with the account's keys."""

    def __init__(self, address: str, access_key: str, secret_key: str, **more: Any) -> None:
        super().__init__(address, **more)
        self._access_key, self._secret_key = access_key, secret_key

    def signed(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        fields = {**fields, "AccessKey": self._access_key}
        content = "".join(value for _, value in sorted(fields.items())).encode() + body
        found = hmac.new(self._secret_key.encode(), content, hashlib.sha1).digest()
        return {**fields, "Signature": base64.b64encode(found).decode()}
