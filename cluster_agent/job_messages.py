"""Messages between users' commands and an agent: a line of JSON each way on a Unix socket, and where that socket is.

A connection carries one request and its answer: `{"method": …, "content": {…}}`, then `{"answer": {…}}`, or
`{"refused": "a line"}`. Nothing is imported here that takes time: a command that lists jobs is over before gRPC would
have been loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

METHODS = ("submit", "jobs", "cancel", "suspend", "resume", "delete", "explain", "simulate")
"""What can be asked: each takes an object and answers with one."""
SOCKET_VARIABLE: Final = "CLUSTER_AGENT_SOCKET"
"""Names the socket, to an agent whose configuration does not and to the commands."""
CALL_SECONDS = 10.0
"""Of every call; an agent answers in milliseconds unless the machine is overloaded."""
LARGEST_REQUEST_BYTES: Final = 4_000_000
"""A job file has at most a fourth of it, and JSON may write a character in six."""
METHOD, CONTENT, ANSWER, REFUSED = "method", "content", "answer", "refused"
END: Final = b"\n"
"""Of every message, which has none inside."""

Facts = dict[str, Any]
"""An answer: plain JSON values, times in seconds."""


def encode(message: Any) -> bytes:
    """A message as it travels."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + END


def decode(data: bytes) -> Facts:
    """Likewise back.

    Raises:
        ValueError: it is no object in JSON.
    """
    try:
        message = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("no object in JSON")  # noqa: TRY004  (of what was sent, not of an argument)
    return message


def default_socket(environment: Mapping[str, str]) -> Path:
    """The socket of the one agent that a user runs here: what the environment names, else below where state is kept."""
    stated = environment.get(SOCKET_VARIABLE, "")
    if stated:
        return Path(stated).absolute()
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME", "~")).expanduser() / ".local/state"
    return base / "fedl2" / "agent" / "jobs.sock"
