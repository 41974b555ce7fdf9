"""Check before a start: who holds the state directory, and whether the ports are free.

It needs nothing of what serves, which takes seconds to load. What it finds free is asked for again as it is taken.
"""

from __future__ import annotations

import contextlib
import socket

from foundation.locks import lock_holder
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.settings import LearnerSettings, split_address


def check_start(settings: LearnerSettings) -> None:
    """See that nobody else serves from the state directory, or listens at the ports.

    Raises:
        StateUnusable: another learner holds the state directory.
        BadConfig: an address is taken, not this machine's, or not allowed.
    """
    if settings.database is None:
        holder = None
        with contextlib.suppress(OSError):  # who takes the lock says what is wrong with the directory
            holder = lock_holder(settings.state_dir / "lock")
        if holder is not None:
            raise StateUnusable(
                f"state_dir {settings.state_dir}: held by another learner (process {holder}); end it, or use another "
                "state_dir"
            )
    check_free("listen", settings.listen)
    check_free("telemetry.http_listen", settings.telemetry.http_listen)
    check_free("identity.enroll_port", settings.enroll_address)


def check_free(setting: str, address: str | None) -> None:
    """Try to listen at an address, if there is one, so that a port in use gets one plain line rather than gRPC's own.

    Raises:
        BadConfig: the address is taken, not this machine's, or not allowed.
    """
    if address is None:
        return
    host, port = split_address(address)
    try:
        family, _, _, _, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(resolved)
            probe.listen(1)
    except OSError as error:
        raise BadLearnerConfig(
            f"{setting} {address}: cannot be listened on ({error.strerror}); end what holds it, or name another port"
        ) from error
