from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from global_learner.errors import BadLearnerConfig
from global_learner.settings import Address, is_everywhere, is_loopback, read_settings, split_address


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
    with pytest.raises(ValidationError, match="write HOST:PORT, such as"):
        TypeAdapter(Address).validate_python(text)


def test_prometheus_servers_have_files_beside_the_configuration_and_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "learner.yaml"
    head = "state_dir: state\ninitial_policy: v1.safetensors\nrollouts:\n  prometheus:\n"
    path.write_text(f"{head}    - {{address: 'http://here:9090/', token_file: token, ca_file: /etc/ca.pem}}\n")
    (server,) = read_settings(path).rollouts.prometheus
    assert (server.address, server.token_file) == ("http://here:9090", tmp_path / "token")
    assert server.ca_file == Path("/etc/ca.pem")
    path.write_text(head + "    - {address: 'http://here:9090'}\n" * 2)
    with pytest.raises(BadLearnerConfig, match="names http://here:9090 2 times") as caught:
        read_settings(path)
    assert "\n" not in str(caught.value)
