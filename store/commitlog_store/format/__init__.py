"""Codecs of single records, units, headers and small files: bytes to values and back. Pure: no I/O, no state."""
