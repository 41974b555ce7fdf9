"""Limits of control messages, checked before anything is made of them; a check returns its argument."""

from __future__ import annotations

import math
import re

from elastic_runtime.errors import BadInput, ProtocolError

LONGEST_TEXT = 65536
"""An address or a failure's line; names are shorter by their own rule."""
MOST_TASKS = 250
"""Workers and PSs of one job. A thread of the coordinator waits for each one's stream of views; DL2's jobs have 32."""
JOB_NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"
_LONGEST_ID = 200
_LARGEST_AMOUNT = 2**53
"""Steps, samples, bytes: years of the fastest network; sums over all members of a job stay within 64 bits."""
_TASK = re.compile(r"[a-z][a-z0-9-]{0,62}")
MOST_MESSAGE_BYTES = 64 * 1024 * 1024
"""A layout of a hundred thousand tensors is a tenth of it."""


def check_task(name: str) -> str:
    """A task's name: lower-case letters, digits and dashes, at most 63.

    Raises:
        ProtocolError: it is none.
    """
    if not _TASK.fullmatch(name):
        raise ProtocolError(f"{name[:80]!r} is no task's name, which is like worker-0 or ps-1")
    return name


def check_job(name: str) -> str:
    """A job's name, which fits a host's label.

    Raises:
        BadInput: it is none.
    """
    if not re.fullmatch(JOB_NAME, name):
        raise BadInput(f"{name[:80]!r} is no job's name: lower-case letters, digits, dots and dashes, at most 63")
    return name


def check_host_and_port(address: str) -> str:
    """An address as `host:port`.

    Raises:
        BadInput: it is none.
    """
    host, _, port = address.rpartition(":")
    plain = host.isascii() and host.isprintable() and not set(host) & set(" /@?#")
    if not (host and plain and port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65535):
        raise BadInput(f"{address[:80]!r} is no address; give host:port, such as 127.0.0.1:7080")
    return address


def check_request_id(name: str) -> str:
    """A request's id, which can be shown in a table.

    Raises:
        BadInput: it is empty, too long or unprintable; a person may have chosen it.
    """
    if not (0 < len(name) <= _LONGEST_ID and name.isprintable()):
        raise BadInput(f"a request needs an id of 1 to {_LONGEST_ID} printable characters")
    return name


def check_text(text: str, what: str) -> str:
    """A text that is not too long.

    Raises:
        ProtocolError: it is too long.
    """
    if len(text) > LONGEST_TEXT:
        raise ProtocolError(f"{what} has {len(text)} characters; at most {LONGEST_TEXT} are taken")
    return text


def check_count(count: int, most: int, what: str) -> int:
    """Check that a number of things is not above `most`.

    Raises:
        ProtocolError: there are more than `most`.
    """
    if count > most:
        raise ProtocolError(f"{count} {what}; at most {most} are taken")
    return count


def check_amount(amount: int, what: str) -> int:
    """A number of steps, samples or bytes that can be.

    Raises:
        ProtocolError: it is beyond.
    """
    if amount > _LARGEST_AMOUNT:
        raise ProtocolError(f"{what} is {amount}; at most {_LARGEST_AMOUNT} is taken")
    return amount


def check_figure(value: float, what: str) -> float:
    """A measured figure: finite and not below zero.

    Raises:
        ProtocolError: it is not.
    """
    if not (math.isfinite(value) and value >= 0):
        raise ProtocolError(f"{what} is {value}; it has to be a number from 0 on")
    return value
