"""Access control of RocketMQ's clients: accounts in ``plain_acl.yml``, signatures of requests, and what they allow."""
