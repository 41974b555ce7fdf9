"""Start of a pod's containers: why it does not come to pass, where waiting for room is not the reason; pure."""

from __future__ import annotations

from typing import Any, Final

from foundation.text import plain_line

Json = dict[str, Any]

LONGEST_LINE: Final = 300
_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
    }
)


def stuck(status: Json) -> str:
    """What a container of a pod waits for that does not come by waiting, such as its image; empty where none does."""
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            return plain_line(f"{waiting['reason']}: {waiting.get('message') or ''}".strip(": "), LONGEST_LINE)
    return ""
