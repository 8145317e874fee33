"""KVConfigProcessor: a name server's settings by namespace and key, which ``mqadmin`` sets: ``config/kvConfig.json``.

Nothing here depends on them, as nothing does in a name server as it comes: the queues of an ordered topic, which are in
the namespace ORDER_TOPIC_CONFIG, reach clients only with ``orderMessageEnable``. The file is a name server's::

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4"}}}

Source: RocketMQ ``namesrv/kvconfig/KVConfigManager.java``, ``namesrv/processor/DefaultRequestProcessor.java``
(``putKVConfig``, ``getKVConfig``, ``deleteKVConfig``, ``getKVListByNamespace``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import CONFIG, KV_CONFIG
from commitlog_store.serve.rocketmq.answering import InThread, RequestFault, answered_in_thread, text_field
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.fastjson import encode_body
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor

# Characters of all namespaces, keys and values: each change writes the whole file.
MOST_SIZE = 1 << 20


class _Content(msgspec.Struct):
    configTable: dict[str, dict[str, str]] = {}


class KVConfigProcessor(Processor):
    """PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE."""

    def __init__(self, owned: OwnedStore, in_thread: InThread) -> None:
        self._engine = owned.engine
        path = os.path.join(owned.engine.path, CONFIG, KV_CONFIG)
        self._file = JsonConfigFile(path, "The settings of a name server", _table)
        self._in_thread = in_thread

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: answered_in_thread(self._in_thread, self._put),
            RequestCode.GET_KV_CONFIG: answered_in_thread(self._in_thread, self._get),
            RequestCode.DELETE_KV_CONFIG: answered_in_thread(self._in_thread, self._delete),
            RequestCode.GET_KVLIST_BY_NAMESPACE: answered_in_thread(self._in_thread, self._list),
        }

    def _put(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        namespace, key, value = (text_field(request, name) for name in ("namespace", "key", "value"))
        self._engine.run(lambda: self._set(namespace, key, value))
        return request.answer(ResponseCode.SUCCESS)

    def _delete(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """Also of one that does not exist."""
        namespace, key = text_field(request, "namespace"), text_field(request, "key")
        self._engine.run(lambda: self._set(namespace, key, None))
        return request.answer(ResponseCode.SUCCESS)

    def _set(self, namespace: str, key: str, value: str | None) -> None:
        """Set one, or remove it. On the job thread, as all that reads and writes the file."""
        self._engine.state.refuse_on_replica()
        root = self._file.read()
        table = _table(self._file, root)
        old = table.get(namespace, {}).get(key)
        if value == old:
            return
        if value is None:
            del table[namespace][key]
        else:
            table.setdefault(namespace, {})[key] = value
            if _size(table) > MOST_SIZE:
                raise RequestFault(
                    ResponseCode.SYSTEM_BUSY, f"the settings of a name server have {MOST_SIZE} characters"
                )
        self._file.write({**root, "configTable": table})

    def _get(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        namespace, key = text_field(request, "namespace"), text_field(request, "key")
        value = self._read().get(namespace, {}).get(key)
        if value is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
        return request.answer(ResponseCode.SUCCESS, fields={"value": value})

    def _list(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        namespace = text_field(request, "namespace")
        found = self._read().get(namespace)
        if found is None:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"table": found}))

    def _read(self) -> dict[str, dict[str, str]]:
        return self._engine.run(lambda: _table(self._file, self._file.read()))


def _size(table: Mapping[str, Mapping[str, str]]) -> int:
    return sum(len(name) + sum(len(key) + len(value) for key, value in some.items()) for name, some in table.items())


def _table(file: JsonConfigFile, root: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """By namespace and key. ``CorruptConfig``."""
    return file.checked(root, _Content, "objects of strings in configTable").configTable
