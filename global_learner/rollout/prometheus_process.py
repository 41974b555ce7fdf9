"""Process that asks a Prometheus server: a question on standard input, a list of numbers on standard output.

A process, so that a server that hangs, trickles or never ends holds up nothing else: it ends at the deadline, and with
its parent. Without numbers, the last line of standard error says why.

Source: Prometheus' HTTP API, instant queries (`/api/v1/query`).
"""

from __future__ import annotations

import json
import math
import signal
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from foundation.kinship import die_with_parent
from foundation.text import parse_json, plain_line

MOST_BYTES = 1 << 18
"""Largest answer; one number takes some hundred."""
_LONGEST_TOKEN = 1 << 14
_REDIRECTS = range(300, 400)
_SERVED = 200


class NoNumber(Exception):
    """No number; the message says why, for an operator."""


def main() -> int:
    """Ask, print, and return the exit code."""
    question = json.load(sys.stdin.buffer)
    die_with_parent(question["parent"])
    signal.alarm(math.ceil(question["deadline_seconds"]))
    try:
        print(json.dumps([number_of(answer_body(question, text)) for text in question["queries"]]))
    except NoNumber as error:
        print(plain_line(str(error)), file=sys.stderr)
        return 1
    return 0


def answer_body(question: dict[str, Any], text: str) -> bytes:
    """The body of the server's answer to one query.

    Args:
        question: `address`, `token_file` and `ca_file`, the latter two empty if there are none, `deadline_seconds`.

    Raises:
        NoNumber: there is none, or it is an error, a redirect, or too long.
    """
    address = urlsplit(question["address"])
    seconds = float(question["deadline_seconds"])
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    if question["token_file"]:
        headers["Authorization"] = f"Bearer {_token(Path(question['token_file']))}"
    body = urlencode({"query": text, "timeout": f"{max(1, int(seconds))}s"}).encode()
    host = address.hostname or ""
    connection: HTTPConnection
    try:
        if address.scheme == "https":
            trust = ssl.create_default_context(cafile=question["ca_file"] or None)
            connection = HTTPSConnection(host, address.port, timeout=seconds, context=trust)
        else:
            connection = HTTPConnection(host, address.port, timeout=seconds)
        connection.request("POST", f"{address.path}/api/v1/query", body, headers)
        reply = connection.getresponse()
        content = b"" if reply.status in _REDIRECTS else reply.read(MOST_BYTES + 1)
        connection.close()
    except (OSError, HTTPException, ValueError) as error:
        raise NoNumber(f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}") from error
    if reply.status in _REDIRECTS:
        raise NoNumber(f"HTTP {reply.status}: it redirects to elsewhere, which is not followed; name that server")
    if len(content) > MOST_BYTES:
        raise NoNumber(f"its answer is longer than {MOST_BYTES} bytes")
    if reply.status != _SERVED:
        raise NoNumber(f"HTTP {reply.status}{_error_in(content)}")
    return content


def number_of(content: bytes) -> float:
    """The one number of an answer.

    Raises:
        NoNumber: it holds none, or several, or is no answer at all.
    """
    try:
        answer = parse_json(content)
        if answer["status"] != "success":
            raise NoNumber(f"it says {answer['status']!r}{_error_in(content)}")
        if answer.get("warnings"):
            # Such as a part of the data that could not be read: the number may be of the rest alone.
            raise NoNumber(f"it warns: {answer['warnings'][0]}")
        kind, result = answer["data"]["resultType"], answer["data"]["result"]
        if kind == "vector":
            if len(result) != 1:
                raise NoNumber(
                    f"{len(result)} series in place of one number: take sum(), avg() or max() of them"
                    if result
                    else "no series: nothing has such labels, or nothing was measured lately"
                )
            result = result[0]["value"]
        elif kind != "scalar":
            raise NoNumber(f"the query gives a {kind}, and no number")
        _, value = result
        number = float(value)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise NoNumber(f"its answer is none of a Prometheus server: {plain_line(repr(content[:80]))}") from error
    if not math.isfinite(number):
        raise NoNumber(f"the query gives {number}")
    return number


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(_LONGEST_TOKEN).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise NoNumber(f"the token cannot be read from {path}: {error}") from error
    if not token.isprintable() or not token:
        raise NoNumber(f"{path} holds no token")
    return token


def _error_in(content: bytes) -> str:
    """The error in an answer, if it has Prometheus' form."""
    try:
        answer = parse_json(content)
        return f": {answer['errorType']}: {answer['error']}"
    except (ValueError, TypeError, KeyError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
