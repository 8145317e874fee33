"""Batches (transactions): many messages that are in the store together or not at all."""
