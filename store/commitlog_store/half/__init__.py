"""Half messages: prepared messages that are committed or rolled back later, as RocketMQ 4.3 and later store them."""
