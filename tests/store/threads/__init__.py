"""Tests of threads: calls, jobs, wake-ups, parallel work and prefetching."""

__all__: list[str] = []
