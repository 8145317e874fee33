"""Filters of messages: by tags, keys and RocketMQ's SQL92 expressions, over columns of properties."""
