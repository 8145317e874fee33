"""The Spark sink: batch writes and exactly-once streaming writes."""
