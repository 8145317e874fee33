"""Versions of RocketMQ's clients as text: they say the ordinal of ``MQVersion.Version``.

From 4.0.0 on, each version up to 5.9.9 has two ordinals: that of its snapshots and its own.

Source: RocketMQ ``common/MQVersion.java``.
"""

from __future__ import annotations

_SNAPSHOT_OF_4_0_0 = 212
_AFTER_5_9_9 = _SNAPSHOT_OF_4_0_0 + 2 * 200


def version_text(ordinal: int) -> str:
    """As a broker's metrics show it: ``v5_3_3``. Versions before 4.0.0 are ``v3``."""
    if ordinal < _SNAPSHOT_OF_4_0_0:
        return "v3"
    if ordinal >= _AFTER_5_9_9:
        return "higher_version"
    number, is_release = divmod(ordinal - _SNAPSHOT_OF_4_0_0, 2)
    return f"v{4 + number // 100}_{number // 10 % 10}_{number % 10}{'' if is_release else '_snapshot'}"
