"""Spark's standalone cluster: a master and workers as processes of their own."""
