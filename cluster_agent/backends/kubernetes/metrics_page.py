"""Page of metrics as a training job exports it: read within a deadline and a size, and one number taken from it.

A job's pod is its user's program: it may answer slowly, for ever, with gigabytes, or with anything else than numbers.
Nothing of it is waited for longer, or kept, than what is asked for.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

LARGEST_BYTES: Final = 1 << 20
"""Of a page; thousands of metrics."""
MOST: Final = 1e15
"""Of a count of samples."""


class NoReading(Exception):
    """A page gives no number; the line says why, without numbers that change from page to page."""


def page_of(host: str, port: int, path: str, deadline_seconds: float) -> bytes:
    """Read a page over HTTP.

    Args:
        deadline_seconds: of all of it, from the connection to the last byte.

    Raises:
        NoReading: it could not be read whole in time.
    """
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connection = HTTPConnection(host, port, timeout=deadline_seconds)
    late, opened = threading.Event(), list[socket.socket]()

    def cut() -> None:
        late.set()
        for each in opened:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    # A time-out of the socket is one of each byte; this is one of them all.
    timer = threading.Timer(deadline_seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        # The connection forgets its socket once the response has it.
        opened.append(connection.sock)
        if late.is_set():
            raise TimeoutError
        connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise NoReading(f"{where} answers {response.status}")
        content = response.read(LARGEST_BYTES + 1)
        is_cut = bool(response.length) and len(content) <= LARGEST_BYTES
    except (HTTPException, OSError, ValueError) as error:
        raise NoReading(f"{where} {_why(error, late.is_set(), deadline_seconds)}") from error
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise NoReading(f"{where} {_why(TimeoutError(), True, deadline_seconds)}")
    if is_cut:
        raise NoReading(f"{where} was cut before its end")
    if len(content) > LARGEST_BYTES:
        raise NoReading(f"{where} is larger than {LARGEST_BYTES >> 20} MB")
    return content


def _why(error: Exception, late: bool, deadline_seconds: float) -> str:
    if late or isinstance(error, TimeoutError):
        return f"takes longer than {deadline_seconds:g} s"
    if isinstance(error, OSError):
        return "does not answer"
    return f"is no page over HTTP ({type(error).__name__})"


def value_of(page: bytes, name: str) -> float:
    """The one value that a page has of a metric.

    Raises:
        NoReading: it has none, several, or one that is no count.
    """
    # Only lines of this metric are read: a page is large, and every agent reads many.
    start = name.encode()
    lines = [line for line in page.splitlines() if line.startswith(start)]
    values = []
    try:
        for family in text_string_to_metric_families(b"\n".join([*lines, b""]).decode()):
            values += [sample.value for sample in family.samples if sample.name == name]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise NoReading(f"{name} cannot be read") from error
    if not values:
        raise NoReading(f"there is no metric {name}")
    if len(values) > 1:
        raise NoReading(f"{name} has several series; export one")
    (value,) = values
    if math.isnan(value):
        raise NoReading(f"{name} is NaN")
    if value < 0.0:
        raise NoReading(f"{name} is negative")
    if value > MOST:
        raise NoReading(f"{name} is more than {MOST:g}")
    return float(value)
