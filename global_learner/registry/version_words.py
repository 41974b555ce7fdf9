"""Words for versions: numbers and aliases as they are typed, refusals, damaged files. Loads no database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from foundation.files import read_ordinary
from global_learner.errors import BadLearnerConfig, BadRequest

_LARGEST_BYTES = 1 << 30
_ALIAS = re.compile(r"[a-z][a-z0-9.-]{0,62}", re.ASCII)
_NUMBERED = re.compile(r"v[0-9].*", re.ASCII)
"""Words that read as numbers of versions, also `v1.2` and `v2-good`."""
_MEANT_OTHERWISE = frozenset({"latest", "newest", "all", "none", "head"})

_ON_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "unsigned": "upgrade the learner",
        "unreadable": "`policyctl version verify`",
        "bad-signature": "`policyctl version verify`",
        "other-fleet": "its agent trusts another fleet's keys",
        "other-version": "`policyctl version verify`",
        "bad-digest": "`policyctl version verify`",
        "expired": "look at its clock",
        "replayed": "look at its clock; was the learner restored from an old copy?",
        "old-root": "was the learner restored from an old copy?",
        "other-assignment": "passes by itself where an assignment was just changed",
        "unusable": "its agent's log says why",
        "unavailable": "the learner's file of it is damaged: `policyctl version restore`",
        "not-allowed": "its operator does not let it (`learner.rollouts`)",
    }
)
"""What to do where a cluster does not act on a version, by its agent's word; `docs/guide/identity.md` has more."""
PASSING_REFUSALS = frozenset({"other-assignment", "not-allowed"})
"""Words that are no fault: one passes by itself, the other is what a cluster's operator wants."""


def refused_words(version: int, reason: str) -> str:
    """Refusal of a version in words, with what to do."""
    advice = _ON_REFUSED.get(reason)
    return f"refused v{version}: {reason}" + (f"; {advice}" if advice else "")


def damaged_words(version: int, is_head: bool) -> str:
    """Damaged or missing file of a version in words, with what to do; `is_head`: it holds the moments."""
    what = "moments are" if is_head else "policy file is"
    remedy = f"`policyctl version restore v{version} --from FILE`"
    return f"v{version}: its {what} damaged or gone; put a copy back: {remedy}"


def version_of(text: str) -> int | str | None:
    """Number in `3` or `v3`; a possible alias, or a word such as `latest`, as it is; None: neither."""
    digits = text.removeprefix("v")
    if digits.isascii() and digits.isdecimal() and 0 < int(digits) < 2**63:
        return int(digits)
    return text if _ALIAS.fullmatch(text) and not _NUMBERED.fullmatch(text) else None


def named_content(what: str, path: Path) -> bytes:
    """Content of a policy file that a command names; `what` is the argument, for people.

    Raises:
        BadConfig: there is none that can be read.
    """
    try:
        return read_ordinary(path, _LARGEST_BYTES, follow=True)
    except OSError as error:
        raise BadLearnerConfig(f"{what}: {path} cannot be read ({error.strerror}); name a policy file") from error


def check_alias(alias: str) -> None:
    """Raise BadRequest if a word is no alias, or names versions in another way."""
    if not _ALIAS.fullmatch(alias):
        raise BadRequest(
            f"{alias[:63]!r} is no alias: use up to 63 lower-case letters, digits, '-' and '.', a letter first"
        )
    if _NUMBERED.fullmatch(alias) or alias in _MEANT_OTHERWISE:
        raise BadRequest(f"{alias!r} cannot be an alias: it means something else already; use another word")
