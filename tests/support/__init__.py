"""Helpers that several tests share: the golden stores, a local Spark, the source tree as syntax trees."""
