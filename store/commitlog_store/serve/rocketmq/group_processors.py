"""GroupProcessors: the processors of clients, groups, transactions, look-ups and administration, made together."""

from __future__ import annotations

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.serve.connection_counts import GroupClients
from commitlog_store.serve.rocketmq.answering import ThreadsOf
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.client_calls import ClientCalls
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processor import Processor
from commitlog_store.serve.rocketmq.processors.broker_admin import BrokerAdminProcessor
from commitlog_store.serve.rocketmq.processors.client_manage import ClientManageProcessor
from commitlog_store.serve.rocketmq.processors.consumer_admin import ConsumerAdminProcessor
from commitlog_store.serve.rocketmq.processors.consumer_manage import ConsumerManageProcessor
from commitlog_store.serve.rocketmq.processors.end_transaction import EndTransactionProcessor
from commitlog_store.serve.rocketmq.processors.group_admin import GroupAdminProcessor
from commitlog_store.serve.rocketmq.processors.kv_config import KVConfigProcessor
from commitlog_store.serve.rocketmq.processors.query_message import QueryMessageProcessor
from commitlog_store.serve.rocketmq.processors.rebalance_lock import RebalanceLockProcessor
from commitlog_store.serve.rocketmq.processors.send_back import SendBackProcessor
from commitlog_store.serve.rocketmq.processors.topic_admin import TopicAdminProcessor
from commitlog_store.serve.rocketmq.request_times import CreationTimes
from commitlog_store.store import MessageStore, owned_by


class GroupProcessors:
    """``processors`` answer requests; the rest is what other parts of a server share with them.

    ``calls`` is to be given the answers that clients send, and ``transactions.start_checks`` the event loop.
    """

    def __init__(self, store: MessageStore, identity: BrokerIdentity, threads_of: ThreadsOf) -> None:
        owned = owned_by(store)
        self.clients = clients = ClientRegistry()
        self.calls = calls = ClientCalls()
        self.readers = readers = LentReaders(owned.engine, store.reader)
        self.groups = groups = ConsumerGroups(owned, readers, creates=identity.creates_groups)
        self.locks = locks = RebalanceLockProcessor()
        self.group_clients = GroupClients(
            clients.members, lambda group, queues: locks.locked_by(group, identity.name, queues)
        )
        admin = threads_of("admin")
        self.creation_times = times = CreationTimes()
        self.transactions = EndTransactionProcessor(store, clients, readers, threads_of("transaction"))
        self.processors: tuple[Processor, ...] = (
            ClientManageProcessor(clients, groups, threads_of),
            ConsumerManageProcessor(clients, groups, readers, lambda: store.physical_bounds()[1], threads_of),
            locks,
            SendBackProcessor(owned, groups, readers, threads_of("send")),
            self.transactions,
            QueryMessageProcessor(readers, threads_of("query_message")),
            TopicAdminProcessor(store, identity, groups, readers, admin, times),
            GroupAdminProcessor(store, identity, clients, groups, readers, admin, times),
            ConsumerAdminProcessor(store, identity, clients, calls, groups, readers, admin),
            BrokerAdminProcessor(store, identity, readers, admin),
            KVConfigProcessor(owned, admin),
        )

    def close(self) -> None:
        self.readers.close()
