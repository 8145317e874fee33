"""Tests of the Spark source and sink: pure parts, planning against a store in memory, and a real local Spark."""
