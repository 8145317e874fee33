"""RocketMQ's own clients as programs, and the servers that they are given: a real broker, and this package's."""
