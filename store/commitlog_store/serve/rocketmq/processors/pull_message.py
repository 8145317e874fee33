"""PullMessageProcessor: pulls of consumers, answered with stored records, or held until a message that matches comes.

Source: RocketMQ ``broker/processor/PullMessageProcessor.java``, ``DefaultPullMessageResultHandler.java``,
``common/sysflag/PullSysFlag.java``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from commitlog_store.consumers.pull import PullService
from commitlog_store.engine.arrivals import Interest
from commitlog_store.engine.stored_messages import StoredPull
from commitlog_store.errors import FilterError, InvalidValue
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.queue.get_message import GetMessageStatus, PullLimits
from commitlog_store.queue.topic_config import PERM_READ, TopicConfig
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    RequestFault,
    ThreadsOf,
    int_field,
    long_field,
    text_field,
)
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Deferred, Handler, Processor, Take
from commitlog_store.serve.rocketmq.processors.route import MASTER_ID
from commitlog_store.serve.rocketmq.pull_hold import PullRequestHoldService

# Bits of the request's sysFlag.
_COMMIT_OFFSET = 1
_SUSPEND = 2
_SUBSCRIPTION = 4
# RocketMQ's ForbiddenType.
_GROUP_FORBIDDEN = 2
_TOPIC_FORBIDDEN = 3
_BROADCASTING_FORBIDDEN = 4
# A broker gives no more than these, whatever is asked (maxTransferCountOnMessageInMemory, maxTransferBytesOn...).
_LIMITS = PullLimits()
_LONGEST_HOLD_S = 600.0
_MS = 1000.0
_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(slots=True, kw_only=True)
class _Pull:
    """A request; ``offset`` is where its next look begins."""

    request: RemotingCommand
    group: SubscriptionGroupConfig
    topic: str
    topic_sys_flag: int
    queue_id: int
    offset: int
    limits: PullLimits
    wanted: MessageFilter
    suspend_s: float
    in_thread: InThread


class PullMessageProcessor(Processor):
    """Pulls. What may wait for the disk is read in another thread."""

    def __init__(
        self,
        pulls: PullService,
        topics: TopicConfig,
        groups: ConsumerGroups,
        clients: ClientRegistry,
        hold: PullRequestHoldService,
        threads_of: ThreadsOf,
    ) -> None:
        self._pulls = pulls
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._hold = hold
        self._threads: dict[int, InThread] = {
            RequestCode.PULL_MESSAGE: threads_of("pull"),
            RequestCode.LITE_PULL_MESSAGE: threads_of("lite_pull"),
        }
        # Pulls that are held, by connection.
        self._held: dict[Connection, set[_Waiting]] = {}

    def handlers(self) -> Mapping[int, Handler]:
        return dict.fromkeys(self._threads, self._pull)

    def connection_lost(self, connection: Connection) -> None:
        for waiting in self._held.pop(connection, ()):
            waiting.give_up()

    def _pull(self, request: RemotingCommand, connection: Connection) -> Answered:
        try:
            pull = self._checked(request)
        except _Forbidden as forbidden:
            fields = {**_header(0, 0, 0), "forbiddenType": str(forbidden.kind)}
            return request.answer(ResponseCode.NO_PERMISSION, str(forbidden), fields=fields)
        found = self._look_in_memory(pull) if self._groups.has_settings(pull.group.group_name) else None
        if found is None:
            return self._pull_slowly(pull, connection)
        if self._may_hold(pull, found):
            return self._hold_for(connection, pull)
        return self._answer(pull, found)

    async def _pull_slowly(self, pull: _Pull, connection: Connection) -> RemotingCommand:
        group = pull.group.group_name
        if not self._groups.has_settings(group):
            # As with autoCreateSubscriptionGroup: pull consumers commit positions before their first heartbeat.
            await pull.in_thread(lambda: self._groups.create_group(group))
        found = await self._look(pull)
        if self._may_hold(pull, found):
            return await self._hold_for(connection, pull)
        return self._answer(pull, found)

    def _look_in_memory(self, pull: _Pull) -> StoredPull | None:
        """None for what may wait for the disk."""
        found = self._pulls.stored_in_memory(pull.topic, pull.queue_id, pull.offset, pull.limits, pull.wanted)
        if found is not None:
            self._note(pull, found)
        return found

    async def _look(self, pull: _Pull) -> StoredPull:
        found = self._look_in_memory(pull)
        if found is None:
            place = (pull.topic, pull.queue_id, pull.offset, pull.limits, pull.wanted)
            found = await pull.in_thread(lambda: self._pulls.stored_messages(*place))
            self._note(pull, found)
        return found

    def _note(self, pull: _Pull, found: StoredPull) -> None:
        """Note how far the group has pulled: also where the pull is held, as a broker does."""
        self._groups.note_pulled(pull.group.group_name, pull.topic, pull.queue_id, found.next_begin_offset)

    def _may_hold(self, pull: _Pull, found: StoredPull) -> bool:
        return _code(pull, found) is ResponseCode.PULL_NOT_FOUND and pull.suspend_s > 0 and not self._hold.is_full

    def _hold_for(self, connection: Connection, pull: _Pull) -> Deferred:
        pull.request.is_suspended = True

        def start(take: Take) -> None:
            def answer(outcome: StoredPull | Exception) -> None:
                held = self._held.get(connection, set())
                held.discard(waiting)
                if not held:  # also of a connection that was lost before its pull was held
                    self._held.pop(connection, None)
                take(outcome if isinstance(outcome, Exception) else self._answer(pull, outcome))

            waiting = _Waiting(pull, self._hold, self._look_in_memory, self._look, answer)
            self._held.setdefault(connection, set()).add(waiting)
            waiting.look()

        return Deferred(start)

    def _answer(self, pull: _Pull, found: StoredPull) -> RemotingCommand:
        flags = pull.topic_sys_flag, pull.group.group_sys_flag
        fields = _header(found.next_begin_offset, found.min_offset, found.max_offset, *flags)
        return pull.request.answer(_code(pull, found), found.status.value, fields=fields, body=found.data)

    def _checked(self, request: RemotingCommand) -> _Pull:
        """The request, if it may be answered. ``RequestFault``, ``_Forbidden``."""
        group = self._groups.settings(text_field(request, "consumerGroup"))
        topic, queue_id = text_field(request, "topic"), int_field(request, "queueId")
        offset, sys_flag = long_field(request, "queueOffset"), int_field(request, "sysFlag")
        if not group.consume_enable:
            raise _Forbidden(_GROUP_FORBIDDEN, f"subscription group no permission, {group.group_name}")
        settings = self._topics.settings(topic)
        if settings is None:
            raise RequestFault(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not settings.perm & PERM_READ:
            raise _Forbidden(_TOPIC_FORBIDDEN, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= queue_id < settings.read_queue_nums:
            raise RequestFault(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal: topic {topic} has {settings.read_queue_nums} queues to read",
            )
        if offset < 0:
            raise RequestFault(ResponseCode.INVALID_PARAMETER, f"queueOffset is 0 at least, not {offset}")
        pull = _Pull(
            request=request,
            group=group,
            topic=topic,
            topic_sys_flag=settings.topic_sys_flag,
            queue_id=queue_id,
            offset=offset,
            limits=_limits(request),
            wanted=self._wanted(request, group, topic, sys_flag),
            suspend_s=long_field(request, "suspendTimeoutMillis", 0) / _MS if sys_flag & _SUSPEND else 0.0,
            in_thread=self._threads[request.code],
        )
        if sys_flag & _COMMIT_OFFSET:
            self._commit(pull, long_field(request, "commitOffset"))
        return pull

    def _wanted(
        self, request: RemotingCommand, settings: SubscriptionGroupConfig, topic: str, sys_flag: int
    ) -> MessageFilter:
        """The request's own subscription, or the group's. ``RequestFault``, ``_Forbidden``."""
        if sys_flag & _SUBSCRIPTION:
            try:
                return _parsed(text_field(request, "subscription", ""), text_field(request, "expressionType", "TAG"))
            except FilterError as error:
                raise RequestFault(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
                ) from error
        group = settings.group_name
        consumers = self._clients.consumers(group)
        if consumers is not None and consumers.is_broadcasting and not settings.consume_broadcast_enable:
            raise _Forbidden(_BROADCASTING_FORBIDDEN, f"the consumer group[{group}] can not consume by broadcast way")
        found = self._clients.subscription(group, topic)
        if found is None:
            raise RequestFault(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: no heartbeat of group {group} has one to topic {topic}",
            )
        if found.sub_version < long_field(request, "subVersion", 0):
            raise RequestFault(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        try:
            return found.filter
        except FilterError as error:
            raise RequestFault(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def _commit(self, pull: _Pull, offset: int) -> None:
        try:
            self._groups.commit(pull.group.group_name, pull.topic, pull.queue_id, offset)
        except InvalidValue as error:
            raise RequestFault(ResponseCode.INVALID_PARAMETER, str(error)) from error


class _Waiting:
    """A pull that is held: looks again at arrivals, and answers when a message matches, or at the latest in time.

    On the loop's thread. Where a look needs another thread, one is under way at a time.
    """

    def __init__(
        self,
        pull: _Pull,
        hold: PullRequestHoldService,
        look_in_memory: Callable[[_Pull], StoredPull | None],
        look: Callable[[_Pull], Awaitable[StoredPull]],
        answer: Callable[[StoredPull | Exception], None],
    ) -> None:
        self._pull = pull
        self._hold = hold
        self._look_in_memory = look_in_memory
        self._look_slowly = look
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._asked = pull.offset
        # The look in another thread, and whether messages came that it may have missed.
        self._slow: asyncio.Task[None] | None = None
        self._looks_again = False
        # Whether the loop is about to look, after those that did not match.
        self._is_scheduled = False
        self._is_over = self._is_answered = False
        may_match = None if pull.wanted.is_all else pull.wanted.may_match
        self._held = hold.hold(Interest(pull.topic, pull.queue_id, may_match), self.look)
        self._timer = self._loop.call_later(min(pull.suspend_s, _LONGEST_HOLD_S), self._end_in_time)

    def look(self) -> None:
        """Answer if a message matches, or no more are waited for."""
        if self._is_answered or self._is_scheduled:
            return
        if self._slow is not None:
            self._looks_again = True
            return
        try:
            found = self._look_in_memory(self._pull)
        except Exception as error:  # noqa: BLE001 - it is the answer, as of a pull that is not held
            self._end(error)
            return
        if found is None:
            self._slow = self._loop.create_task(self._look_in_thread())
        else:
            self._looked(found)

    async def _look_in_thread(self) -> None:
        try:
            found = await self._look_slowly(self._pull)
        except Exception as error:  # noqa: BLE001 - as above
            self._end(error)
            return
        self._slow = None
        self._looked(found)
        if self._looks_again:
            self._looks_again = False
            self.look()

    def _looked(self, found: StoredPull) -> None:
        pull, is_over = self._pull, self._is_over or self._hold.is_released
        if found.status is GetMessageStatus.NO_MATCHED_MESSAGE and not is_over:
            pull.offset = found.next_begin_offset
            self._is_scheduled = True
            self._loop.call_soon(self._look_on)  # other clients are served between two looks into memory
            return
        is_not_found = _code(pull, found) is ResponseCode.PULL_NOT_FOUND
        if is_not_found and not is_over:
            return
        if is_not_found and pull.offset != self._asked:
            # None of those before matched: the client continues after them.
            found = found._replace(status=GetMessageStatus.NO_MATCHED_MESSAGE, next_begin_offset=pull.offset)
        self._end(found)

    def _look_on(self) -> None:
        self._is_scheduled = False
        self.look()

    def _end_in_time(self) -> None:
        self._is_over = True
        self.look()

    def give_up(self) -> None:
        """The client is gone, and gets no answer."""
        if self._slow is not None:
            self._slow.cancel()
        self._end(StoredPull(GetMessageStatus.OFFSET_FOUND_NULL, self._asked, 0, 0))

    def _end(self, outcome: StoredPull | Exception) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        self._timer.cancel()
        self._hold.end(self._held)
        self._answer(outcome)


class _Forbidden(Exception):
    """NO_PERMISSION, and RocketMQ's type of it."""

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(remark)
        self.kind = kind


def _limits(request: RemotingCommand) -> PullLimits:
    """``PullLimits`` of the client, within a broker's."""
    messages = int_field(request, "maxMsgNums")
    size = int_field(request, "maxMsgBytes", _LIMITS.size)
    if messages >= _LIMITS.messages and size >= _LIMITS.size:
        return _LIMITS
    return PullLimits(messages=max(min(messages, _LIMITS.messages), 1), size=max(min(size, _LIMITS.size), 1))


@lru_cache(maxsize=1024)
def _parsed(subscription: str, expression_type: str) -> MessageFilter:
    """``FilterError``."""
    if expression_type in ("", "TAG"):
        return MessageFilter.parse_quietly(tags=subscription)
    return MessageFilter.parse_quietly(filter=subscription)


def _code(pull: _Pull, found: StoredPull) -> ResponseCode:
    """A queue without messages: an offset of 0 is right."""
    code = _CODES.get(found.status)
    if code is None:
        code = ResponseCode.PULL_OFFSET_MOVED if pull.offset else ResponseCode.PULL_NOT_FOUND
    return code


def _header(next_begin: int, low: int, high: int, topic_sys_flag: int = 0, group_sys_flag: int = 0) -> dict[str, str]:
    """PullMessageResponseHeader. The next pull goes to this broker too, as without RocketMQ's slaveReadEnable."""
    return {
        "suggestWhichBrokerId": str(MASTER_ID),
        "nextBeginOffset": str(next_begin),
        "minOffset": str(low),
        "maxOffset": str(high),
        "topicSysFlag": str(topic_sys_flag),
        "groupSysFlag": str(group_sys_flag),
    }
