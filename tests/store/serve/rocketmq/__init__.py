"""``commitlog serve --rocketmq``."""
