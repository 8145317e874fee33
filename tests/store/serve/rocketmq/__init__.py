"""Tests of the server for RocketMQ's clients."""
