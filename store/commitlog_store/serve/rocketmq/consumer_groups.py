"""ConsumerGroups: the consumer groups of the owned store as clients see them: whether they exist, and their positions.

A group exists with its settings in ``subscriptionGroup.json``, or with a position. The first pull of a consumer creates
its group, the first heartbeat also its retry topic, whose route clients ask for: the heartbeat says which flags it has.

Source: RocketMQ ``broker/subscription/SubscriptionGroupManager.java`` (``findSubscriptionGroupConfig``),
``broker/topic/TopicConfigManager.java`` (``createTopicInSendMessageBackMethod``),
``broker/offset/ConsumerOffsetManager.java``.
"""

from __future__ import annotations

from collections.abc import Iterable

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.consumers.retry import retry_topic
from commitlog_store.errors import TopicNotFound
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import validate_group
from commitlog_store.serve.rocketmq.answering import RequestFault
from commitlog_store.serve.rocketmq.codes import ResponseCode

# Clients create no more groups than this in a store, since each one writes the files of all;
# ``MessageStore.set_group_settings`` has no limit.
MOST_CREATED_GROUPS = 5_000
NO_POSITION = -1


class ConsumerGroups:
    """Safe for several threads. What is said to wait belongs into another thread than the event loop's."""

    def __init__(self, owned: OwnedStore, readers: LentReaders, *, creates: bool = True) -> None:
        """``creates``: whether ``create`` creates groups, as with RocketMQ's autoCreateSubscriptionGroup."""
        self._creates = creates
        self._engine = owned.engine
        self._groups = owned.groups
        self._readers = readers
        # Groups that exist and whose positions are corrected; each is in the store's files, which bounds them.
        self._ready: set[str] = set()
        # Those that have settings, and of these, those whose retry topic is listed, too.
        self._with_settings: set[str] = set()
        self._created: set[str] = set()

    def is_ready(self, group: str) -> bool:
        """Whether the group is known to exist, and its positions can be asked for without waiting."""
        return group in self._ready

    def has_settings(self, group: str) -> bool:
        """Whether ``create_group`` has nothing to do."""
        return group in self._with_settings

    def is_created(self, group: str) -> bool:
        """Whether ``create`` has nothing to do."""
        return group in self._created

    def create_group(self, group: str) -> None:
        """Create the group, unless it exists. Waits. ``RequestFault`` for one that is not created, ``InvalidValue``,
        and the errors of ``SubscriptionGroups.put``."""
        validate_group(group)
        self._engine.run(lambda: self._create_group(group))

    def create(self, group: str, *, retry_sys_flag: int = 0) -> None:
        """``create_group``, and create its retry topic, unless that exists. Also the errors of
        ``TopicConfig.create_topic``.

        ``retry_sys_flag``: the topicSysFlag of a retry topic that does not exist.
        """
        validate_group(group)
        self._engine.run(lambda: self._create(group, retry_sys_flag))

    def _create(self, group: str, retry_sys_flag: int) -> None:
        self._create_group(group)
        queues = self._groups.settings(group).retry_queue_nums
        if queues > 0:
            self._engine.topics.create_topic(retry_topic(group), queues, sys_flag=retry_sys_flag)
        self._created.add(group)

    def _create_group(self, group: str) -> None:
        self._engine.state.refuse_on_replica()
        settings = self._groups.subscription_groups
        if settings.get(group) is None:
            if not self._creates and not self.has_group(group):
                raise _no_group(group)
            if len(settings.all()) >= MOST_CREATED_GROUPS:
                raise RequestFault(
                    ResponseCode.SYSTEM_BUSY,
                    f"the store has {MOST_CREATED_GROUPS} consumer groups; {group} is not created. Delete some.",
                )
            settings.put(SubscriptionGroupConfig(group_name=group))
        self._make_ready(group)
        self._with_settings.add(group)

    def make_ready(self, group: str) -> None:
        """See that the group exists, and correct its positions. Waits. ``RequestFault`` if it does not exist."""
        if group not in self._ready:
            self._engine.run(lambda: self._make_ready(group))

    def _make_ready(self, group: str) -> None:
        """Within a job, as deletions are: a group that is deleted afterwards is forgotten after it was noted here."""
        if not self.has_group(group):
            raise _no_group(group)
        self._groups.restore(group)
        self._ready.add(group)

    def has_group(self, group: str) -> bool:
        """Whether the group has settings or a position. Waits."""
        return self._groups.subscription_groups.get(group) is not None or bool(self._groups.offsets.topics(group))

    def settings(self, group: str) -> SubscriptionGroupConfig:
        """The settings of a group, with a broker's defaults. Waits for the first one only."""
        return self._groups.settings(group)

    def position(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset that the group consumes, or ``NO_POSITION``."""
        return self._groups.offsets.get(group, topic).get(queue_id, NO_POSITION)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a position. ``InvalidValue``; ``StoreClosed`` where a closing store may not have saved it."""
        self._groups.offsets.commit(group, {(topic, queue_id): offset})
        self._engine.state.refuse_closed()  # afterwards: closing saves what was set before it began

    def note_pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        self._groups.pulled.note(group, topic, queue_id, next_offset)

    def forget_pulled(self, group: str, topic: str, queue_ids: Iterable[int]) -> None:
        """Note that the group's consumers pull these queues from its positions on."""
        self._groups.pulled.forget(group, [(topic, queue_id) for queue_id in queue_ids])

    def lists_queue(self, topic: str, queue_id: int) -> bool:
        """Whether the queue is known to exist. It does not wait."""
        return self._engine.topics.lists(topic, queue_id)

    def refuse_missing_queue(self, topic: str, queue_id: int) -> None:
        """``RequestFault`` for a queue that is neither listed nor in the store. Waits."""
        self._engine.topics.content()
        if self._engine.topics.lists(topic, queue_id):
            return
        with self._readers.lent() as reader:
            try:
                if queue_id in reader.queue_ids(topic):
                    return
            except TopicNotFound:
                pass
        raise RequestFault(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} has no queue {queue_id} here")

    def forget(self, group: str) -> None:
        """Note that the group, or its retry topic, may not exist any more."""
        for known in (self._ready, self._with_settings, self._created):
            known.discard(group)


def _no_group(group: str) -> RequestFault:
    return RequestFault(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
