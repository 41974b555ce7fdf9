"""Errors of an API server: what it refused, and where it could not be asked.

`ApiRefused` is an answer: the request reached the server, and it said no; each subclass is one kind of no that callers
tell apart. `ApiUnanswered` is no answer, or one that says "later": whether the request was carried out is not known, so
whoever wrote has to look before writing again. Both are a cluster that does not answer, to the loop.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cluster_agent.errors import BackendUnavailable


class ApiError(BackendUnavailable):
    """Root of what a request to an API server can end with.

    Attributes:
        word: of its kind, for metrics.
    """

    word: ClassVar[str] = "unknown"


class ApiUnanswered(ApiError):
    """No answer in time, or a server that is busy or in trouble (429, 5xx).

    Attributes:
        retry_after_seconds: what the server asked for; 0 where it asked for nothing.
        may_have_happened: whether the server may have carried the request out all the same.
    """

    word = "unanswered"

    def __init__(self, message: str, retry_after_seconds: float = 0.0, *, may_have_happened: bool = True) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.may_have_happened = may_have_happened


class NotActing(ApiError):
    """Not sent: another agent may act by now."""

    word = "not-acting"


class WatchSilent(ApiUnanswered):
    """A watch has said nothing for longer than it ever should."""

    word = "silent"


class ApiRefused(ApiError):
    """The server understood, and refused.

    Attributes:
        code: HTTP's.
        reason: the Status's own word (`AlreadyExists`), or an empty one.
        causes: (field, message) of each thing that is wrong with an object.
    """

    word = "refused"

    def __init__(self, message: str, code: int, reason: str = "", causes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code, self.reason, self.causes = code, reason, causes


class NotFound(ApiRefused):
    """There is no such object, or no such resource: its CRD may not be installed yet."""

    word = "not-found"


class AlreadyExists(ApiRefused):
    """An object of this name is there."""

    word = "already-exists"


class Conflict(ApiRefused):
    """The object has changed since it was read, is owned by another field manager, or is another than was meant."""

    word = "conflict"


class Expired(ApiRefused):
    """What a watch or a list was to go on from is no longer kept: list anew."""

    word = "expired"


class Forbidden(ApiRefused):
    """The credentials do not allow it, or a quota or an admission rule is against it."""

    word = "forbidden"


class Unauthorized(ApiRefused):
    """The credentials are none: a token that has run out, a certificate of another authority."""

    word = "unauthorized"


class Invalid(ApiRefused):
    """The object itself is wrong (400, 422)."""

    word = "invalid"


_BY_REASON: dict[str, type[ApiRefused]] = {"AlreadyExists": AlreadyExists, "Expired": Expired, "Gone": Expired}
_BY_CODE: dict[int, type[ApiRefused]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
}
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_MESSAGE = 1000


def error_of(code: int, status: Any, request: str, retry_after_seconds: float = 0.0) -> ApiError:
    """The error that a Status stands for, whether it was an answer or came in a watch.

    Args:
        status: the decoded body; anything else than a Status object (a proxy's page) says no more than the code does.
        request: the request in words, such as "GET pods of ns/x".
    """
    found = status if isinstance(status, dict) and status.get("kind") == "Status" else {}
    reason = str(found.get("reason") or "")
    detail = str(found.get("message") or "").replace("\n", " ")[:_LONGEST_MESSAGE]
    message = f"{request}: {code}{f' {reason}' if reason else ''}{f': {detail}' if detail else ''}"
    if code in _LATER:
        details = found.get("details")
        seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
        if isinstance(seconds, int | float) and seconds > 0:
            retry_after_seconds = max(retry_after_seconds, float(seconds))
        # 429 is said before anything is done; the others may come after the object was stored.
        return ApiUnanswered(message, retry_after_seconds, may_have_happened=code != 429)
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ApiRefused)
    return kind(message, code, reason, _causes(found))


def _causes(status: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return ()
    return tuple(
        (str(cause.get("field", "")), str(cause.get("message", ""))) for cause in causes if isinstance(cause, dict)
    )
