r"""Properties: ``name\x01value\x02``, read the way RocketMQ and Java read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format import properties
from commitlog_store.format.properties import MAX_PROPERTIES_SIZE, decode_properties, decode_utf8, encode_properties
from tests.store.format.golden_files import STORES, messages

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


def test_every_entry_is_a_name_and_a_value() -> None:
    assert decode_properties(b"TAGS\x01paid\x02KEYS\x01k1 k2\x02") == {"TAGS": "paid", "KEYS": "k1 k2"}


def test_last_separator_may_be_missing() -> None:
    assert decode_properties(b"TAGS\x01paid\x02KEYS\x01k1") == decode_properties(b"TAGS\x01paid\x02KEYS\x01k1\x02")


def test_no_bytes_are_not_properties() -> None:
    assert decode_properties(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"TAGS", id="name-only"),
        pytest.param(b"TAGS\x01", id="empty-value-at-the-end"),
        pytest.param(b"TAGS\x01\x02", id="empty-value"),
        pytest.param(b"\x01paid\x02", id="empty-name"),
        pytest.param(b"\x01a\x01b\x02", id="empty-name-and-a-second-separator"),
        pytest.param(b"\x01\x02", id="separators-only"),
        pytest.param(b"\x02\x02\x02", id="empty-entries"),
    ],
)
def test_bytes_that_are_not_an_entry_are_skipped(data: bytes) -> None:
    assert decode_properties(data) == {}
    assert decode_properties(b"a\x01b\x02" + data.strip(b"\x02") + b"\x02c\x01d") == {"a": "b", "c": "d"}


def test_name_ends_at_the_first_separator() -> None:
    assert decode_properties(b"a\x01b\x01c\x02") == {"a": "b\x01c"}


def test_last_of_equal_names_wins() -> None:
    assert decode_properties(b"a\x011\x02b\x012\x02a\x013\x02") == {"a": "3", "b": "2"}


def test_an_entry_without_value_does_not_take_back_an_earlier_one() -> None:
    assert decode_properties(b"a\x011\x02a\x01\x02") == {"a": "1"}


# Printed by OpenJDK 17 for new String(bytes, UTF_8).
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("41eda08042", "A\ufffdB"),
        ("eda080edb08043", "\ufffd\ufffdC"),
        ("eda041", "\ufffdA"),
        ("eda0", "\ufffd"),
        ("ed", "\ufffd"),
        ("edbfbf", "\ufffd"),
        ("e4eda080", "\ufffd\ufffd"),
        ("f0eda080", "\ufffd\ufffd"),
        ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f0808080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f8888080", "\ufffd\ufffd\ufffd\ufffd"),
        ("e08080", "\ufffd\ufffd\ufffd"),
        ("c0af", "\ufffd\ufffd"),
        ("e4bd", "\ufffd"),
        ("e4bd41", "\ufffdA"),
        ("f09041", "\ufffdA"),
        ("f090", "\ufffd"),
        ("f09080", "\ufffd"),
        ("ff41", "\ufffdA"),
        ("80", "\ufffd"),
    ],
)
def test_ill_formed_utf8_is_replaced_as_java_replaces_it(data: str, text: str) -> None:
    assert decode_utf8(bytes.fromhex(data)) == text
    assert decode_properties(b"k\x01v" + bytes.fromhex(data)) == {"k": "v" + text}


def test_a_cut_character_does_not_swallow_the_separator_after_it() -> None:
    assert decode_properties(b"a\x01\xe4\xbd\x02b\x01c\x02") == {"a": "\ufffd", "b": "c"}


@given(st.binary())
def test_decoding_never_fails(data: bytes) -> None:
    assert all(name and value for name, value in decode_properties(data).items())


@given(st.dictionaries(TEXT, TEXT), st.booleans())
def test_encoded_properties_are_read_back(texts: dict[str, str], trailing_separator: bool) -> None:
    assert decode_properties(encode_properties(texts, trailing_separator)) == texts


def test_encoding_keeps_the_order_and_ends_as_asked() -> None:
    texts = {"TAGS": "paid", "KEYS": "ключ"}
    assert encode_properties(texts) == b"TAGS\x01paid\x02KEYS\x01" + "ключ".encode() + b"\x02"
    assert encode_properties(texts, trailing_separator=False) == encode_properties(texts)[:-1]


@pytest.mark.parametrize("trailing_separator", [True, False])
def test_no_properties_are_not_bytes(trailing_separator: bool) -> None:
    assert encode_properties({}, trailing_separator) == b""


@pytest.mark.parametrize("text", ["\x01", "\x02", "a\x01b", "a\x02b"])
def test_a_separator_within_a_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"Name of property .* holds"):
        encode_properties({text: "value"})
    with pytest.raises(InvalidValue, match="Value of property 'name' holds"):
        encode_properties({"name": text})


def test_an_empty_name_or_value_is_refused_since_no_reader_would_give_it_back() -> None:
    with pytest.raises(InvalidValue, match="Name of property '' is empty"):
        encode_properties({"": "value"})
    with pytest.raises(InvalidValue, match="Value of property 'name' is empty"):
        encode_properties({"name": ""})


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no UTF-8 form"):
        encode_properties({"name": "\ud83d"})
    with pytest.raises(InvalidValue, match="no UTF-8 form"):
        encode_properties({"\ud83d": "value"})


def test_as_many_bytes_as_the_length_field_can_say_are_the_most() -> None:
    room = MAX_PROPERTIES_SIZE - len(b"k\x01\x02")
    assert len(encode_properties({"k": "v" * room})) == 32767
    with pytest.raises(InvalidValue, match="32768 bytes"):
        encode_properties({"k": "v" * (room + 1)})
    assert len(encode_properties({"k": "v" * (room + 1)}, trailing_separator=False)) == 32767


def test_the_limit_counts_bytes_not_characters() -> None:
    with pytest.raises(InvalidValue, match="at most 32767"):
        encode_properties({"k": "я" * 16383})


def test_names_of_known_properties_are_as_on_disk() -> None:
    assert properties.UNIQ_KEY == "UNIQ_KEY"
    assert properties.REAL_QID == "REAL_QID"
    assert properties.SHARDING_KEY == "__SHARDINGKEY"


@pytest.mark.parametrize("store", STORES)
def test_properties_that_rocketmq_read_survive_both_ways_of_writing(store: str) -> None:
    for message in messages(store):
        expected = message["properties"]
        for trailing_separator in (True, False):
            assert decode_properties(encode_properties(expected, trailing_separator)) == expected
