"""AccessKeys: the keys with which a broker with access control is asked.

The file is RocketMQ's own ``conf/tools.yml``, of which other lines are skipped::

    accessKey: rocketmq2
    secretKey: 12345678
    securityToken: ...          for brokers whose accounts have one

Source: RocketMQ ``acl/common/AclClientRPCHook.java``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.format.remoting_command import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature

# Bytes of a file of keys; far more than one needs.
_LARGEST_FILE = 64 << 10
_LINE = re.compile(r"(accessKey|secretKey|securityToken)[ \t]*[:=][ \t]*(.*)")


@dataclass(frozen=True)
class AccessKeys:
    """The account, by its access key, and its secrets, which no text of this object shows."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> AccessKeys:
        """The keys of a file. ``InvalidValue`` for a file without both keys, ``ReadFailed``."""
        place = os.fspath(path)
        try:
            with failed_reads(place):
                text = disk.read_file(place, _LARGEST_FILE).decode()
        except UnicodeDecodeError:
            raise InvalidValue(f"The access keys in {place} are not UTF-8 text.") from None  # which the cause quotes
        found = {}
        for line in text.splitlines():
            if match := _LINE.fullmatch(line.strip()):
                found[match[1]] = match[2].strip().strip("\"'")
        for name in ("accessKey", "secretKey"):
            if not found.get(name):
                raise InvalidValue(
                    f"The file {place} has no {name}. Expected lines such as those of RocketMQ's conf/tools.yml: "
                    "'accessKey: NAME' and 'secretKey: SECRET'."
                )
        return cls(found["accessKey"], found["secretKey"], found.get("securityToken", ""))

    def signed_fields(self) -> dict[str, str]:
        """The fields of a request that has no others, and no body."""
        fields = {ACCESS_KEY: self.access_key}
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        return {**fields, SIGNATURE: signature(fields, b"", self.secret_key.encode())}
