"""The option ``path``, as a path and as a URI."""

from __future__ import annotations

import os

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_options
from pyspark_commitlog.options.write import parse_batch_write_options


def path_of(value: str) -> str:
    return parse_options({"path": value, "subscribe": "orders"}).path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:/data/my%20store", "/data/my store"),
        ("file:///data/my%20store", "/data/my store"),
        ("file://localhost/data/store", "/data/store"),
        ("FILE://LOCALHOST/data/100%25", "/data/100%"),
        ("file:///data/%C3%A4", "/data/ä"),
        ("file:////data/store", "/data/store"),
    ],
)
def test_a_uri_is_decoded(given: str, path: str) -> None:
    assert path_of(given) == path


def test_a_tilde_is_the_home_directory_as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/maria")
    assert path_of("~/store") == "/home/maria/store"
    assert parse_options({"path": "a=~/a,b=~/b", "subscribe": "orders"}).stores["b"] == "/home/maria/b"
    assert parse_batch_write_options({"path": "~/store"}).path == "/home/maria/store"
    assert path_of("./~/store") == os.path.abspath("~/store")
    assert path_of("file:///~/store") == "/~/store"


def test_a_path_is_taken_literally() -> None:
    assert path_of("/data/my%20store") == "/data/my%20store"


@pytest.mark.parametrize("given", ["file://host/data", "file://localhost", "file:///data/%00", "ftp://localhost/data"])
def test_a_path_that_cannot_be_a_local_directory_is_refused(given: str) -> None:
    with pytest.raises(OptionError, match="Option path"):
        path_of(given)
