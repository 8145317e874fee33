"""RocketMQ itself and this package use the same store directories. Needs Maven, a JDK, and once the network."""
