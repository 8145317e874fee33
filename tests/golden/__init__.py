"""Stores that RocketMQ wrote; see README.md."""
