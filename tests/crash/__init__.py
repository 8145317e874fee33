"""Crashes at every point, failing calls, damaged ends: what the store that writes does with them."""
