"""Tests of the codecs: golden bytes from RocketMQ, round trips, and values that do not fit."""
