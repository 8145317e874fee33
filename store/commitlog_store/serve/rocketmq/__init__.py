"""``commitlog serve --rocketmq``: RocketMQ's own clients produce to and consume from the store that a server owns."""
