"""Failures of the sink: drivers, tasks, disks and readers that fail at every step of a write, and what remains then."""
