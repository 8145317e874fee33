"""Threads, waits and interrupts of a store: the only room that handles them."""
