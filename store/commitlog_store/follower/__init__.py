"""Mirrors: a store that follows the log of another one over the network."""
