"""Salvage: every whole record of a damaged log, wherever it lies, brought into a new store or into files."""
