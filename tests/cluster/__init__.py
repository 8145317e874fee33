"""Spark on hosts of their own, which see a store through ``commitlog serve`` only."""
