"""Messages between users' commands and an agent: JSON objects over gRPC on a Unix socket, and where that socket is.

Nothing is imported here that takes time: a command that lists jobs is over before a scheduler would have been loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVICE = "fedl2.jobs.v1.Jobs"
METHODS = ("submit", "jobs", "cancel", "suspend", "resume", "explain", "simulate")
"""What can be asked: each takes an object and answers with one."""
CALL_SECONDS = 10.0
"""Of every call; an agent answers in milliseconds unless the machine is overloaded."""

Facts = dict[str, Any]
"""An answer: plain JSON values, times in seconds."""


def encode(message: Any) -> bytes:
    """A message as it travels."""
    return json.dumps(message, allow_nan=False).encode()


def decode(data: bytes) -> Any:
    """Likewise back.

    Raises:
        ValueError: it is no JSON.
    """
    return json.loads(data)


def default_socket(environment: Mapping[str, str]) -> Path:
    """The socket of the one agent that a user runs here."""
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME", "~")).expanduser() / ".local/state"
    return base / "fedl2" / "agent" / "jobs.sock"
