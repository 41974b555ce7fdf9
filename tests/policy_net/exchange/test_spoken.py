"""What listens at an address: who is silent, and who is not there."""

import socket

from policy_net.exchange.other_server import Spoken, spoken_at

PATIENCE_SECONDS = 60.0


def test_who_accepts_and_says_nothing_is_told_from_nobody() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        times = iter([0.0, 59.99, 59.99])
        assert spoken_at("127.0.0.1", silent.getsockname()[1], PATIENCE_SECONDS, lambda: next(times)) is Spoken.SILENT


def test_a_name_that_no_host_has_is_called_one() -> None:
    assert spoken_at("no-such-host.invalid", 7070, PATIENCE_SECONDS) is Spoken.NO_HOST
