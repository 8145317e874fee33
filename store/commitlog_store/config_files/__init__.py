"""The JSON files of ``<store>/config/``, as RocketMQ's broker writes and reads them."""
