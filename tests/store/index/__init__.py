"""Tests of the index: its files, their writer, recovery, and files of any geometry."""
