"""Benchmarks. Each ``bench_<name>.py`` has a ``main()`` that prints its results; ``make bench`` runs them all."""
