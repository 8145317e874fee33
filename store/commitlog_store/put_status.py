"""Status of a put: RocketMQ's ``PutMessageStatus``.

Source: RocketMQ ``store/PutMessageStatus.java``.
"""

from __future__ import annotations

import enum


class PutMessageStatus(enum.Enum):
    """The status of a put. The values are RocketMQ's own names, spelling included."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"

    @property
    def is_refusal(self) -> bool:
        """Whether the message is certainly not in the log."""
        return self not in _MAY_BE_STORED


# The outcome of a put without a fault: its status, and no reason.
OK_STATUS = (PutMessageStatus.PUT_OK, "")

_MAY_BE_STORED = frozenset(
    {
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
        PutMessageStatus.UNKNOWN_ERROR,
    }
)
