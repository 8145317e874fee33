"""Options of Spark's Kafka connector that do not exist here: for each its equivalent, or why none is needed.

Source: Spark's "Structured Streaming + Kafka Integration Guide", and ``KafkaSourceProvider.scala``. Options that exist
under Kafka's name are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_BROKER = "files are read and written without a broker, so nothing is to be configured for one"
_NO_GROUP = "a query has no consumer group: its positions are in its checkpoint"
_NO_FETCH = "offsets and messages come from files, without requests that could time out"
_TOPICS_OF_A_READ = "To choose the topics of a read, use subscribe, subscribePattern or assign."
_OF_A_READ = "It is an option of a read."
_NO_DESERIALIZER = "It is not needed: bodies are BINARY, and keys are texts, or BINARY with rowFormat=kafka."

_BOTH: Mapping[str, str] = {
    "kafka.bootstrap.servers": "Its equivalent is path, the directory of the store.",
    "kafka.client.id": f"It is not needed: {_NO_BROKER}.",
    "kafka.security.protocol": "It is not needed: the permissions of the store's files decide who may use them.",
    "nameserver": "Its equivalent is path, the directory of the store.",
    "namesrvaddr": "Its equivalent is path, the directory of the store.",
}

READ_HINTS: Mapping[str, str] = {
    **_BOTH,
    "kafka.group.id": f"It is not needed: {_NO_GROUP}.",
    "groupidprefix": f"It is not needed: {_NO_GROUP}.",
    "kafka.session.timeout.ms": f"It is not needed: {_NO_GROUP}.",
    "kafka.enable.auto.commit": f"It is not needed: {_NO_GROUP}.",
    "kafkaconsumer.polltimeoutms": f"It is not needed: {_NO_FETCH}.",
    "fetchoffset.numretries": f"It is not needed: {_NO_FETCH}.",
    "fetchoffset.retryintervalms": f"It is not needed: {_NO_FETCH}.",
    "kafka.max.poll.records": "Its equivalent is maxOffsetsPerTrigger for a batch, maxRecordsPerPartition for a task.",
    "kafka.max.partition.fetch.bytes": "Its equivalent is maxBytesPerPartition.",
    "kafka.fetch.max.bytes": "Its equivalent is maxBytesPerTrigger.",
    "kafka.auto.offset.reset": "Its equivalents are startingOffsets, and failOnDataLoss where messages are gone.",
    "kafka.isolation.level": "It is not needed: a transaction is seen whole or not at all.",
    "kafka.check.crcs": "Its equivalent is verifyCrc.",
    "kafka.key.deserializer": _NO_DESERIALIZER,
    "kafka.value.deserializer": _NO_DESERIALIZER,
    "topic": _TOPICS_OF_A_READ,
    "topics": _TOPICS_OF_A_READ,
}

WRITE_HINTS: Mapping[str, str] = {
    **_BOTH,
    "includeheaders": "It is not needed: the column headers of rowFormat=kafka is written whenever it is there.",
    "kafka.acks": "Its equivalent is flush.",
    "kafka.compression.type": "Its equivalent is bodyCompression.",
    "kafka.max.request.size": "Its equivalent is maxMessageSize.",
    "kafka.partitioner.class": "Its equivalents are the columns shardingKey and queueId, or key and partition.",
    "kafka.transactional.id": "Its equivalents are txnAppId and txnVersion of a batch write; streams need none.",
    "kafka.enable.idempotence": "It is not needed: streams write each batch once, and so do txnAppId and txnVersion.",
    "kafka.key.serializer": "It is not needed: keys are texts, bodies are BINARY or STRING.",
    "kafka.value.serializer": "It is not needed: keys are texts, bodies are BINARY or STRING.",
    **dict.fromkeys(
        (
            *("subscribe", "subscribepattern", "assign", "failondataloss", "minpartitions", "maxrecordsperpartition"),
            *("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp", "maxtriggerdelay"),
            *("startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy"),
            *("maxoffsetspertrigger", "minoffsetspertrigger", "maxbytespertrigger", "filterat"),
        ),
        _OF_A_READ,
    ),
}


def hint_for(option: str, hints: Mapping[str, str]) -> str | None:
    """What to do without an option of Kafka's, or with one for the other direction; None for any other name."""
    name = option.lower()
    found = hints.get(name)
    if found is None and name.startswith("kafka."):
        return f"It is not needed: {_NO_BROKER}."
    return found
