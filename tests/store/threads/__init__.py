"""Tests of threads: calls, jobs, wake-ups, parallel work and prefetching."""
