"""Replication of an open store: whom it serves as a master, and what happens when its mirror has been promoted."""

from __future__ import annotations

from functools import partial

from commitlog_store.config import BrokerRole, MessageStoreConfig
from commitlog_store.engine.commit_batch import epoch_of
from commitlog_store.engine.running_state import RunningState
from commitlog_store.errors import CommitLogError, ReplicaStore
from commitlog_store.recovery.open import OpenedLog
from commitlog_store.replication.address import parse_address
from commitlog_store.replication.connection import MasterIdentity
from commitlog_store.replication.epoch_reporter import EpochReporter
from commitlog_store.replication.replica_mark import ReplicaMark, read_mark, remove_mark, write_mark
from commitlog_store.replication.security import security_of
from commitlog_store.replication.service import HAService

__all__ = ["open_replication"]


def open_replication(path: str, config: MessageStoreConfig, log: OpenedLog, state: RunningState) -> HAService:
    """Listen for slaves, if the settings ask for it. ``ListenFailed``, ``InvalidValue``, ``ReadFailed``."""
    security = security_of(config)
    mark = None if config.broker_role is BrokerRole.SLAVE else read_mark(path)
    reporter = None
    if mark is not None and mark.state == "promoted":
        reporter = EpochReporter(parse_address(mark.peer), mark.epoch, security, partial(remove_mark, path))
    # Only peers ask for it, and it takes a look at the ledger.
    epoch = 0 if config.ha_address is None else epoch_of(path, log)
    identity = MasterIdentity(security, epoch, partial(_fence, path, state))
    return HAService(config, log.files, identity, state.fence, reporter)


def _fence(path: str, state: RunningState, epoch: int, peer: str) -> None:
    """A slave has a higher epoch: its store was promoted. This one takes no more messages, also when it is reopened."""
    state.fence(
        ReplicaStore(
            f"The store of {path} was superseded: {peer} has epoch {epoch}. Put to the new master. What this store has "
            "beyond it is in no other copy.",
            path=path,
        )
    )
    try:
        write_mark(path, ReplicaMark("superseded", peer, epoch))
    except CommitLogError as error:
        state.fence(error)
        raise
