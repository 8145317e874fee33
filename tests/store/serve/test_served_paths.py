"""What a server may show: directories of its host."""

from __future__ import annotations

import pytest

from commitlog_store.errors import InvalidValue
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.run import ServeRequest


@pytest.mark.parametrize(
    ("address", "what"),
    [("grpc://host:8815", "a server"), ("s3://bucket/orders", "an archive"), ("a=archive+file:///x", "an archive")],
)
def test_an_address_is_not_served(address: str, what: str) -> None:
    request = ServeRequest(stores=[address], listen=ListenSettings.parse("127.0.0.1:0"), read_only=True)
    with pytest.raises(InvalidValue, match=f"is the address of {what}"):
        request.named_paths()
