"""Java's largest int and long: the limits of numbers in RocketMQ's formats and settings.

``MAX_LONG`` also stands for an offset or a time after all others.
"""

from __future__ import annotations

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
