"""What is done for those of ``remote.wire.CALLS`` that write, by the store that the server owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from commitlog_store.remote.wire import CALLS
from commitlog_store.serve.uploads import BATCH_WRITES

# Each takes the MessageStore and the call's arguments.
WRITES: Mapping[str, Callable[..., Any]] = {**BATCH_WRITES}

assert WRITES.keys() == {name for name, call in CALLS.items() if call.writes}
