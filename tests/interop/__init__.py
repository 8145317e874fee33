"""RocketMQ itself and this package at work on the same store directories. Needs Maven, a JDK, and once the network."""
