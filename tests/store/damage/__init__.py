"""Damaged stores, paths that are not a store, and missing permissions: one clear error each, never a wrong body."""
