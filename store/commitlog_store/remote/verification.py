"""A verification by the server of a store: begun, waited for, and cancelled when its caller gives up."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import msgspec

from commitlog_store.errors import CommitLogError, RemoteFailed
from commitlog_store.reader import OnDamage
from commitlog_store.remote.connection import Connection
from commitlog_store.remote.wire import Verifying, decode_error, decode_other

if TYPE_CHECKING:
    from commitlog_store.progress import Progress
    from commitlog_store.verify.assessment import Assessment

# A verification is asked for in parts of this length: progress is shown, and Ctrl-C works between two of them.
_WAIT_S = 1.0
_CANCEL_S = 5.0


def verify_at_server(connection: Connection, on_damage: OnDamage, progress: Progress | None) -> Assessment:
    """The deep assessment. ``ServerBusy`` while another verification of the store is under way; ``RemoteFailed``."""
    verification_id, begins = secrets.token_hex(16), True
    try:
        while True:
            found: Verifying = connection.ask("verify", on_damage, (verification_id, begins, _WAIT_S)).value
            begins = False
            if found.error is not None:
                raise decode_error(found.error)
            if found.assessment is not None:
                return _decode_assessment(found.assessment)
            if progress is not None and found.total:
                progress(found.done, found.total)
    except BaseException:
        # One that has ended, or that is another client's, stays as it is.
        with contextlib.suppress(CommitLogError):
            connection.ask("cancel_verification", on_damage, (verification_id,), timeout_s=_CANCEL_S)
        raise


def _decode_assessment(body: bytes) -> Assessment:
    """``RemoteFailed`` for anything but an assessment."""
    from commitlog_store.verify.assessment import Assessment  # most readers do without

    try:
        return msgspec.msgpack.decode(body, type=Assessment, dec_hook=decode_other)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteFailed(f"The server's assessment is not one: {error}.") from error
