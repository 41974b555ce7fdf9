from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from global_learner.settings import Address, is_everywhere, is_loopback, split_address


@pytest.mark.parametrize(
    ("address", "host", "port", "loopback", "everywhere"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070, True, False),
        ("127.9.9.9:1", "127.9.9.9", 1, True, False),
        ("localhost:0", "localhost", 0, True, False),
        ("[::1]:7070", "::1", 7070, True, False),
        ("0.0.0.0:7070", "0.0.0.0", 7070, False, True),  # noqa: S104  (looked at, not listened on)
        ("[::]:7070", "::", 7070, False, True),
        ("10.0.0.7:65535", "10.0.0.7", 65535, False, False),
        ("learner.example:7070", "learner.example", 7070, False, False),
        ("localhost.example:7070", "localhost.example", 7070, False, False),
    ],
)
def test_an_address_says_who_can_reach_it(address: str, host: str, port: int, loopback: bool, everywhere: bool) -> None:
    assert TypeAdapter(Address).validate_python(address) == address
    assert split_address(address) == (host, port)
    assert is_loopback(address) is loopback
    assert is_everywhere(address) is everywhere


@pytest.mark.parametrize("text", ["", "7070", ":7070", "host", "host:", "host:http", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be HOST:PORT, such as"):
        TypeAdapter(Address).validate_python(text)
