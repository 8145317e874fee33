"""Tests of reading archives in object storage."""
