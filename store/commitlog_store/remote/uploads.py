"""``RemoteBatches``: batches for the store of a server, staged there by uploads, and committed there by one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from commitlog_store.batch.staging import StagedContent, staged_path, unique_name
from commitlog_store.batch_id import BatchId, CommittedBatch, StagedFile, StagingPlan, check_commit, joined_uses
from commitlog_store.columnar.encode import EncodedMessages
from commitlog_store.errors import CommitLogError, NotServed, PutNotConfirmed, RemoteAccessRefused, RemoteFailed
from commitlog_store.format.checksum import crc32
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.wire import UploadEnd

# A question has at most 16 MiB. Larger parts than these take as much processor time, and more memory of the server.
PART_SIZE = 4 << 20
# The commit of a large batch takes longer: so many bytes are given another second.
_COMMITTED_A_SECOND = 16 << 20
# How long the removal of uploads is tried: the server removes them later, too.
_REMOVAL_TIMEOUT_S = 5.0


class RemoteBatches:
    """The batches of one client. One thread at a time. Use it as a context manager.

    ``topic_faults`` is that of the store's ``StagingPlan``. Errors of the server begin with its address. ::

        batch = BatchId("loader", 7)
        with RemoteBatches.connect("grpc://127.0.0.1:8815") as batches:
            plan = batches.staging_plan("orders", 4)
            with BatchStager(batches, batch, queue_counts=plan.queue_counts, topic="orders") as stager:
                stager.put(pa.table({"body": [b"a", b"b"]}))
                staged = stager.finish()
            batches.commit(batch, [staged], new_topic_queues=4, on_device=True)
    """

    def __init__(self, address: RemoteAddress, *, topic_faults: Mapping[str, str] | None = None) -> None:
        self._address = address
        self._connection = Connection(address)
        self._topic_faults = topic_faults or {}
        self._removal_timeout_s = min(address.timeout_s, _REMOVAL_TIMEOUT_S)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        tls_root_certificates: bytes | None = None,
        rpc_timeout_s: float = 30.0,
        topic_faults: Mapping[str, str] | None = None,
    ) -> RemoteBatches:
        """The server is asked at the first call. The token and the certificates may come from the environment, as of
        ``StoreReader.open``. ``InvalidValue``, ``ReadFailed``."""
        address = RemoteAddress.given(
            url, token=token, tls_root_certificates=tls_root_certificates, rpc_timeout_s=rpc_timeout_s
        )
        return cls(address, topic_faults=topic_faults)

    def close(self) -> None:
        """Leave the server. What was uploaded stays there for the commit, of any client."""
        self._connection.close()

    def __enter__(self) -> RemoteBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def staging_plan(self, topic: str | None, new_topic_queues: int) -> StagingPlan:
        """What the tasks of a batch have to know, of ``topic`` or of all topics. Asked before they begin.

        ``RemoteFailed``; ``RemoteAccessRefused`` for a token that may not write; ``NotServed`` for a server that
        does not own its store; ``CorruptConfig``, ``ReadFailed``.
        """
        plan: StagingPlan = self.ask("staging_plan", topic, new_topic_queues)
        return plan

    def writer(self, batch: BatchId, name: str) -> Upload:
        """Where the records of a part of the batch go, as to ``StagedWriter``."""
        return Upload(self, batch, name)

    def producers_faults(self) -> Callable[[str], str | None]:
        """See ``TopicConfig.producers_faults``. The commit asks for them again."""
        return lambda topic: no_producers_fault(topic) or self._topic_faults.get(topic)

    def commit(
        self, batch: BatchId, staged: Sequence[StagedFile], *, new_topic_queues: int, on_device: bool
    ) -> CommittedBatch:
        """``MessageStore.commit_batch`` at the server, once, however often it is asked. Its errors, and:

        ``PutNotConfirmed`` when no answer came in time: the batch is in the store or is not, and committing it again
        finds out. ``RemoteAccessRefused``, ``NotServed``: nothing was written.
        """
        check_commit(batch, staged)
        timeout_s = self._address.timeout_s + sum(one.size for one in staged) / _COMMITTED_A_SECOND
        arguments = (batch, _with_joined_uses(staged), new_topic_queues, on_device)
        try:
            committed: CommittedBatch = self.ask("commit_batch", *arguments, timeout_s=timeout_s)
            return committed
        except (RemoteFailed, NotServed) as error:
            # A server that refuses says nothing of an attempt before, whose answer was lost.
            if isinstance(error, RemoteAccessRefused | NotServed) and not self._connection.was_unanswered:
                raise
            raise PutNotConfirmed(
                PutMessageStatus.UNKNOWN_ERROR,
                f"The commit of {batch} got no answer: {error} Whether it is in the store shows when it is committed "
                "again, which stores nothing twice.",
            ) from error

    def remove(self, staged: Sequence[StagedFile]) -> None:
        """Remove uploads that will not be committed. The errors of the connection; the server removes them later."""
        if staged:
            self.ask("remove_staged", [replace(one, topics=()) for one in staged], timeout_s=self._removal_timeout_s)

    def forget_write(self, batch: BatchId) -> None:
        """Forget a batch that has a unique id only to be committed once: it is not going to be committed again."""
        self.ask("forget_write", batch, timeout_s=self._removal_timeout_s)

    def ask(self, call: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """The answer to one of ``calls.CALLS``. The errors of the server, and ``RemoteFailed``."""
        try:
            return self._connection.ask(call, "raise", arguments, timeout_s=timeout_s).value
        except RemoteFailed:
            raise  # they name it
        except CommitLogError as error:
            error.args = (f"The server at {self._address}: {error}", *error.args[1:])
            raise


def _with_joined_uses(staged: Sequence[StagedFile]) -> list[StagedFile]:
    """The same files, of which the first has the topics of all: a thousand tasks with a thousand topics each would not
    fit into one question."""
    uses = joined_uses(staged)
    return [replace(one, topics=() if number else uses) for number, one in enumerate(staged)]


class Upload:
    """A staged file that is sent to the server as it is written. Use it as a context manager, as ``StagedWriter``."""

    def __init__(self, batches: RemoteBatches, batch: BatchId, name: str = "") -> None:
        self._batches = batches
        self._batch = batch
        self._name = unique_name(name)
        self._content = StagedContent(staged_path(batch, self._name))
        self._part = bytearray()
        self._sent = 0
        self._finished = False

    def append(self, encoded: EncodedMessages) -> None:
        """Stage records whose queues are known. ``StagingFailed``, ``StagingLost``, and the errors of the connection.

        After an error the upload is given up.
        """
        if not len(encoded.rows):
            return
        head, data = self._content.add(encoded)
        for piece in (memoryview(head), data.data):
            at = 0
            while at < len(piece):
                taken = piece[at : at + PART_SIZE - len(self._part)]
                self._part += taken
                at += len(taken)
                if len(self._part) == PART_SIZE:
                    self._send(None)

    def finish(self) -> StagedFile:
        """The staged file, which is whole at the server. Nothing is sent without rows."""
        staged = self._content.described()
        if staged.rows:
            self._send((staged.rows, staged.size, staged.crc))
        self._finished = True
        return staged

    def discard(self) -> None:
        """Give the upload up, unless it is finished. What cannot be removed now is removed by the server later."""
        if not self._finished:
            self._finished = True
            if self._sent:
                with contextlib.suppress(CommitLogError):  # another error is on its way
                    self._batches.remove([self._content.described()])

    def _send(self, end: UploadEnd | None) -> None:
        part, self._part = self._part, bytearray()
        at, self._sent = self._sent, self._sent + len(part)
        self._batches.ask("upload_part", self._batch, self._name, at, part, crc32(part), end)

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()
