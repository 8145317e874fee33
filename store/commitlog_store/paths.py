"""Names of a store's files and directories, and rules for topic names.

::

    <store>/
      commitlog/<20 digits>                         the log; a file is named by the physical offset it starts at.
                                                    It may be in another directory (``files/store_paths.py``)
      consumequeue/<topic>/<queue id>/<20 digits>   one queue; a file is named by the byte of the queue it starts at
      index/<yyyyMMddHHmmssSSS>                     index files, named by the local time of their creation
      config/*.json                                 topics, subscription groups, consumer offsets, ...; each with a .bak
      staging/<application>/<version>/*             encoded messages of batches that are not committed yet (ours)
      repair/<time of the cut>/                     what was cut off the log: kept.json, commitlog/ (ours)
      checkpoint  abort  lock
      audit.jsonl                                   what admins did from the pages of ``commitlog serve`` (ours)
      figures.ring                                  what a served store did within the last days (ours)
      gate                                          the part of the log being dispatched as one batch (ours)

Source: RocketMQ ``store/config/StorePathConfigHelper.java``, ``broker/BrokerPathConfigHelper.java``,
``common/topic/TopicValidator.java``, ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import quote

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import MAX_INT, MAX_LONG

_T = TypeVar("_T")

__all__ = [
    "ABORT",
    "ARCHIVE_HOLD",
    "ARCHIVE_HOLDER",
    "ARCHIVE_IDENTITY",
    "ARCHIVE_MANIFESTS",
    "ARCHIVE_SCHEMES",
    "AUDIT_LOG",
    "BACKUP_SUFFIX",
    "BATCH_CONSUME_QUEUE",
    "BATCH_LEDGER",
    "BATCH_TOPIC",
    "CHECKPOINT",
    "COMMIT_LOG",
    "COMPACTION_CONSUME_QUEUE",
    "CONFIG",
    "CONSUMER_FILTER_CONFIG",
    "CONSUMER_OFFSET_CONFIG",
    "CONSUME_QUEUE",
    "CONSUME_QUEUE_EXT",
    "CREATED_BY",
    "DELAY_OFFSET_CONFIG",
    "DELETED_TOPICS",
    "DLQ_TOPIC_PREFIX",
    "FIGURES",
    "GATE",
    "INDEX",
    "KEPT",
    "KV_CONFIG",
    "LIGHT_QUEUE_PREFIX",
    "LOCK",
    "MAX_QUEUE_ID",
    "MOST_QUEUES",
    "POSITIONS_GROUP",
    "POSITIONS_TOPIC",
    "REMOTE_SCHEMES",
    "REPAIR",
    "REPLICA_MARK",
    "RETRY_TOPIC_PREFIX",
    "SAVED_ENDS",
    "SETTLED",
    "STAGING",
    "SUBSCRIPTION_GROUP_CONFIG",
    "SYSTEM_GROUPS",
    "SYSTEM_GROUP_PREFIX",
    "SYSTEM_TOPICS",
    "SYSTEM_TOPIC_PREFIXES",
    "TIMER_CHECK",
    "TIMER_LOG",
    "TIMER_WHEEL",
    "TOPICS_CONFIG",
    "UNNAMED_WRITE_PREFIX",
    "archive_hint",
    "checked_commit_log",
    "file_name_for_offset",
    "is_encodable",
    "is_queue_id",
    "is_system_group",
    "is_system_topic",
    "names_directory",
    "parse_file_name",
    "path_fault",
    "refuse_batch_topic",
    "validate_group",
    "validate_new_topic",
    "validate_topic",
    "without_secrets",
]

# Directories of the store directory.
COMMIT_LOG = "commitlog"
# How the address of a served store begins.
REMOTE_SCHEMES = ("grpc://", "grpc+tls://")
# Before the URL of an archive among the readers that retention waits for.
ARCHIVE_HOLDER = "archive:"
# How the address of an archive in object storage begins, of one in HDFS, and of one in a directory.
ARCHIVE_SCHEMES = (
    *("s3://", "s3a://", "gs://", "az://", "azure://", "abfs://", "abfss://"),
    *("hdfs://", "archive+file://"),
)
# An object and a directory that every archive has.
ARCHIVE_IDENTITY = "archive.json"
ARCHIVE_MANIFESTS = "manifest"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
COMPACTION_CONSUME_QUEUE = "compaction/compactionCq"
INDEX = "index"
CONFIG = "config"
STAGING = "staging"
# The bytes that "commitlog repair" has cut off the log.
REPAIR = "repair"
KEPT = "kept.json"

# The staging name of a batch write without a name of its own: this prefix and 32 hexadecimal digits.
UNNAMED_WRITE_PREFIX = "write-"

# Files of the store directory.
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
GATE = "gate"
SETTLED = "settled"
SAVED_ENDS = "savedends"
AUDIT_LOG = "audit.jsonl"
FIGURES = "figures.ring"
# The timer of RocketMQ 5: a file and a directory. They are a broker's alone.
TIMER_WHEEL = "timerwheel"
TIMER_LOG = "timerlog"
TIMER_CHECK = "timercheck"

# Files of the config directory.
TOPICS_CONFIG = "topics.json"
SUBSCRIPTION_GROUP_CONFIG = "subscriptionGroup.json"
CONSUMER_OFFSET_CONFIG = "consumerOffset.json"
DELAY_OFFSET_CONFIG = "delayOffset.json"
CONSUMER_FILTER_CONFIG = "consumerFilter.json"
BATCH_LEDGER = "batchLedger.json"
KV_CONFIG = "kvConfig.json"
CREATED_BY = "createdBy.json"
DELETED_TOPICS = "deletedTopics.json"
ARCHIVE_HOLD = "archiveHold.json"
REPLICA_MARK = "replica.json"
BACKUP_SUFFIX = ".bak"

# Queue ids, which name directories, are 32-bit integers.
MAX_QUEUE_ID = MAX_INT
# The most queues of a topic. Far more than any topic needs; each is a directory.
MOST_QUEUES = 65_536

# A scheme has two letters at least: one is a drive's.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL)
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")

_FILE_NAME_DIGITS = 20

RETRY_TOPIC_PREFIX = "%RETRY%"
DLQ_TOPIC_PREFIX = "%DLQ%"
# Light queues, fed by multi-dispatch: their units point to records of other queues.
LIGHT_QUEUE_PREFIX = "%LMQ%"
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_NEW_TOPIC_LENGTH = 127
# Also the longest name that file systems give a directory, as every topic has one.
_LONGEST_TOPIC_LENGTH = 255
_LONGEST_NAME_BYTES = 255
_LONGEST_GROUP_LENGTH = 255

# Topics that a broker or proxy makes for itself under these names. Messages of %RETRY% and %DLQ% topics came from
# applications, so those are not among them.
SYSTEM_TOPICS = frozenset(
    {
        # TopicValidator's own set
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        # <cluster> and <cluster>_REPLY_TOPIC of TopicConfigManager, for the cluster name that brokers have by default
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        # ProxyConfig
        "DefaultHeartBeatSyncerTopic",
    }
)
SYSTEM_TOPIC_PREFIXES = ("rmq_sys_", "RMQ_SYS_")
# Groups that a broker, its tools or its clients make for themselves: MixAll's own set and prefix. DEFAULT_CONSUMER is
# not among them: applications that name no group consume as that one.
SYSTEM_GROUPS = frozenset(
    {"TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER"}
    | {"SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"}
    | {"CID_ONSAPI_PULL"}
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
# Ours: a message for every batch. RocketMQ takes topics with this prefix for its own, which clients do not see.
BATCH_TOPIC = "rmq_sys_commitlog_batch"
# Ours too: positions of consumers that were committed with a batch. This group's own position in it, queue 0, says how
# many of them are in consumerOffset.json.
POSITIONS_TOPIC = "rmq_sys_commitlog_positions"
POSITIONS_GROUP = "CID_RMQ_SYS_COMMITLOG_POSITIONS"


def is_encodable(text: str) -> bool:
    """Whether a file may have the name; not with half a character in it, as JSON may hold."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def path_fault(text: str) -> str | None:
    """Why a text is not the path of a store but something else, and what to do, as a sentence; None for a path.

    A directory with such a name is given with ``./`` before it.
    """
    if found := _URI.fullmatch(text):
        scheme, rest = found[1].lower(), found[2]
        if scheme == "file":
            advice = f"the path alone, or archive+file:///{rest.lstrip('/')} to read an archive there"
            return f"A URI is taken by Spark's option path only: give {advice}."
        if scheme == "dbfs":
            mounted = "/dbfs/" + rest.lstrip("/")
            return f"Files are read through the file system: give the path where Databricks mounts it, {mounted}."
        if text.startswith(REMOTE_SCHEMES):
            return "It is a server's address, and this needs the files: run it where the store's directory is."
        if text.startswith(ARCHIVE_SCHEMES):
            return (
                "Object storage has archives, which are read alone, and this needs the files of a store: 'commitlog "
                "restore' makes a store of an archive, and 'commitlog archive --check --deep' verifies it; or copy the "
                "store to a local or mounted file system."
            )
        if f"{scheme}://" in (*REMOTE_SCHEMES, *ARCHIVE_SCHEMES):
            shown = without_secrets(rest)
            if rest.startswith("//"):
                return f"The scheme of an address is written in lower case: {scheme}:{shown}."
            address = f"{scheme}://{shown if scheme == 'archive+file' else shown.removeprefix('/')}"
            return f"An address has two slashes, and is a string, not a pathlib.Path: {address!r}."
        return (
            f"Files of a store are mapped into memory, which {scheme}: does not offer: copy the store to a local or "
            "mounted file system, and give the path of its directory there."
        )
    if all(_ADDRESS.fullmatch(part.strip()) for part in re.split("[;,]", text)):
        return (
            "It is the address of a broker or a name server, and stores are files: give the broker's storePathRootDir "
            "where it is mounted, or the path of a copy, which 'commitlog follow HOST:10912 DIR' keeps. The address of "
            "a commitlog serve begins with grpc://."
        )
    return None


_OTHER_HDFS_SCHEMES = ("webhdfs", "swebhdfs", "viewfs")


def archive_hint(text: str) -> str:
    """What a text may mean that is not the address of an archive, as a sentence to follow another; or nothing."""
    if found := _URI.fullmatch(text):
        scheme, rest = found[1].lower(), found[2]
        if scheme == "file":
            return f" For an archive in a directory: archive+file:///{without_secrets(rest).lstrip('/')}."
        if scheme in _OTHER_HDFS_SCHEMES:
            return " For an archive in HDFS: hdfs://HOST:PORT/DIRECTORY, the name node or a name service."
        lower = f"{scheme}:{rest}"
        is_upper = lower != text and lower.startswith(ARCHIVE_SCHEMES)
        return f" In lower case: {without_secrets(lower)}." if is_upper else ""
    if not text or ":" in text or "@" in text:
        return ""
    place = f"archive+file://{quote(text)}" if text.startswith("/") else "archive+file:// and its absolute path"
    return f" For an archive in a directory: {place}."


def without_secrets(address: str) -> str:
    """An address that was refused, for an error: without what may be keys before ``@``, and a signature after ``?``.

    Before the ``@`` of Azure's ``abfs://CONTAINER@ACCOUNT`` is the container.
    """
    shown = re.split("[?#]", address)[0]
    if re.match(r"abfss?://[^:@]+@[^@]+$", shown):
        return shown
    hidden, _, rest = shown.rpartition("@")
    return f"...@{rest}" if hidden else shown


def checked_commit_log(name: object) -> str:
    """The name of a log's directory as a user gives it (``storePathCommitLog``). ``InvalidValue`` if it cannot be one.

    RocketMQ takes several with commas between for its MultiPath.
    """
    text = name.__fspath__() if hasattr(name, "__fspath__") else name
    setting = ("store_path_commit_log",)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        expected = "the directory of the log files"
        raise InvalidValue(f"store_path_commit_log is {expected}, not {name!r}.", settings=setting, expected=expected)
    if "," in text:
        expected = (
            "one directory: a log in several (RocketMQ's MultiPath) is not read; link its files into one directory"
        )
        raise InvalidValue(f"store_path_commit_log is {expected}, not {text!r}.", settings=setting, expected=expected)
    return text.strip()


def file_name_for_offset(offset: int) -> str:
    """The 20 digits that name the file which starts at ``offset``. ``InvalidValue`` unless it is 0 to 2**63 - 1."""
    if not 0 <= offset <= MAX_LONG:
        raise InvalidValue(f"A file's first offset is 0 to {MAX_LONG}, not {offset}.")
    return f"{offset:0{_FILE_NAME_DIGITS}d}"


def parse_file_name(name: str) -> int | None:
    """The offset that a file name stands for; None for a name that is not of 20 digits or beyond 2**63 - 1."""
    if len(name) != _FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    offset = int(name)
    return offset if offset <= MAX_LONG else None


def is_queue_id(name: str) -> bool:
    """Whether a directory's name is a queue id. "007" is not: RocketMQ writes the number without leading zeros."""
    return name.isascii() and name.isdigit() and name == str(int(name)) and int(name) <= MAX_QUEUE_ID


def names_directory(topic: str) -> bool:
    """Whether a topic's name can be that of a directory (invariant 10). RocketMQ refuses only separators."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME_BYTES


def validate_topic(topic: str, *, max_length: int = _LONGEST_TOPIC_LENGTH) -> None:
    """``InvalidValue`` for a text that cannot be the name of a topic in a store.

    Stores hold longer names than RocketMQ's tools create: ``validate_new_topic`` has the limit for new ones.
    """
    _require_text("topic", topic)
    if not _TOPIC.fullmatch(topic):
        raise InvalidValue(f"A topic is made of letters, digits, '_', '-', '%' and '|', and not empty: {topic!r}.")
    if len(topic) > max_length:
        raise InvalidValue(f"A topic has at most {max_length} characters here, {topic!r} has {len(topic)}.")


def _require_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidValue(f"A {what} is text, not {value!r}.")


def checked_text(what: str, value: str) -> str:
    """``InvalidValue`` for what is not a text."""
    _require_text(what, value)
    return value


def checked_choice(name: str, given: _T, choices: tuple[str, ...]) -> _T:
    """The argument of that name, which is one of some texts. ``InvalidValue``."""
    if given not in choices:
        *others, last = map(repr, choices)
        raise InvalidValue(f"{name} is {', '.join(others)} or {last}, not {given!r}.")
    return given


def checked_topics_to_retain(retain: Iterable[str]) -> list[str]:
    """The ``retain`` of ``clean_unused_topics``. ``InvalidValue`` for what is not a list of texts."""
    if isinstance(retain, str | bytes) or not isinstance(retain, Iterable):
        raise InvalidValue(f"retain is a list of topics, not {retain!r}.")
    return [checked_text("topic", topic) for topic in retain]


def validate_group(group: str) -> None:
    """``InvalidValue`` for a text that cannot be the name of a consumer group (``Validators.checkGroup``)."""
    _require_text("consumer group", group)
    if not _TOPIC.fullmatch(group):
        raise InvalidValue(
            f"A consumer group is made of letters, digits, '_', '-', '%' and '|', and not empty: {group!r}."
        )
    if len(group) > _LONGEST_GROUP_LENGTH:
        raise InvalidValue(
            f"A consumer group has at most {_LONGEST_GROUP_LENGTH} characters, {group!r} has {len(group)}."
        )


def validate_new_topic(topic: str) -> None:
    """``InvalidValue`` for a topic that RocketMQ would not create: 127 characters, 255 for retry and dead letters.

    Also for the topic of the store's batches, into which only the store puts messages.
    """
    _require_text("topic", topic)
    refuse_batch_topic(topic)
    for_group = topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
    validate_topic(topic, max_length=_LONGEST_TOPIC_LENGTH if for_group else _NEW_TOPIC_LENGTH)


def refuse_batch_topic(topic: str) -> None:
    """``InvalidValue`` for the topic in which the store records its batches: each message there means one."""
    if topic == BATCH_TOPIC:
        raise InvalidValue(f"Topic {topic!r} is where the store records its batches; put messages into another one.")


def is_system_group(group: str) -> bool:
    """Whether a consumer group is RocketMQ's own or the store's, rather than an application's."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Whether a topic holds RocketMQ's own records rather than an application's.

    A broker also makes topics named after itself and its cluster; these look like an application's, and only those of
    the default cluster are known here.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIXES)
