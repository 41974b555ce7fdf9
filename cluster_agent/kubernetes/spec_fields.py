"""Fields of the spec of a TrainingJob or an ElasticTarget: each is read and checked by itself.

Every function raises `Wrong` where it cannot be used, with a line that names it and says what to use.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, TypeVar

from cluster_agent.kubernetes.capacity import requests_of
from cluster_agent.kubernetes.resources import Json
from foundation.text import plain_line

_Word = TypeVar("_Word", bound=StrEnum)

MOST_TASKS: Final = 16
"""Of one role, in a job with parameter servers."""
MOST_RANKS: Final = 64
"""Workers of a job without parameter servers."""
OTHER_TYPE: Final = "other"
"""The model type of a job that names none."""
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?")
"""Services, and the names of pods, begin with it."""
LONGEST_TYPE: Final = 63
_LONGEST_CLAIM = 253
_LONGEST_URL = 1024
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://(([^\s:@/?#]+@)?[^\s@/?#]+(/[^\s?#]*)?|/[^\s?#]+)")
_PASSWORD = re.compile(r"[^/]*//[^/@]*:[^/@]*@")
DEFAULT_BACKOFF_LIMIT: Final = 3
_MOST_RESTARTS = 100


class Wrong(Exception):
    """A field that cannot be used; the line is for its author."""


def check_name(name: str) -> None:
    """Services and pods begin with the name, and have limits of their own."""
    if not _NAME.fullmatch(name):
        raise Wrong(f"its name is {name}: use at most 48 small letters, digits and dashes, a letter first")


def check_suspend(value: Any) -> None:
    """Only a truth value."""
    if not isinstance(value, bool):
        raise Wrong(f"spec.suspend is {value!r}: use true or false")


def check_absent(spec: Json, fields: tuple[str, ...], why: str) -> None:
    """Fields that mean nothing for such a job are not taken in silence."""
    for name in fields:
        if spec.get(name) is not None:
            raise Wrong(f"spec.{name} is given: {why}; leave it out")


def backoff_limit(spec: Json) -> int:
    """Failures in a row, without progress in between, that others follow."""
    value = spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_RESTARTS:
        raise Wrong(f"spec.backoffLimit is {value!r}: use 0 to {_MOST_RESTARTS}")
    return value


def pod_template(found: Json, role: str, *, needs_requests: bool = True) -> Json:
    """A template whose requests can be read."""
    template = found.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(spec, dict) or not isinstance(containers, list):
        raise Wrong(f"spec.{role}.template.spec.containers is missing")
    if not containers or not all(isinstance(each, dict) for each in containers):
        raise Wrong(f"spec.{role}.template.spec.containers is empty")
    try:
        requests = requests_of(spec, {})
    except (ValueError, TypeError, AttributeError) as error:
        raise Wrong(f"spec.{role}.template: its requests cannot be read: {error}") from error
    if needs_requests and not any(amount for name, amount in requests.items() if name == "cpu" or "gpu" in name):
        raise Wrong(
            f"spec.{role}.template requests neither CPU nor GPUs (containers[0].resources.requests), so that nothing "
            "says what one takes"
        )
    return template


def count(found: Json, name: str, default: int | None, most: int) -> int:
    """A number from 1 to `most`; without a default it has to be given."""
    value = found.get(name.rpartition(".")[2], default)
    if value is None:
        raise Wrong(f"spec.{name} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Wrong(f"spec.{name} is {value!r}: use 1 to {most}")
    return value


def word(spec: Json, name: str, default: str) -> str:
    """A short text."""
    value = spec.get(name, default)
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_TYPE or not value.isprintable():
        raise Wrong(f"spec.{name} is {value!r}: use a word of at most {LONGEST_TYPE} letters")
    return value


def one_of(words: type[_Word], spec: Json, name: str, default: _Word) -> _Word:
    """One of the words that there are."""
    try:
        return words(spec.get(name, default))
    except ValueError as error:
        raise Wrong(f"spec.{name} is {spec[name]!r}: use {', '.join(words)}") from error


def work(found: Any) -> tuple[float | None, float | None]:
    """Epochs and steps; one of them, or neither."""
    if found is None:
        return None, None
    given = {name: found.get(name) for name in ("epochs", "steps") if found.get(name) is not None}
    if len(given) != 1:
        raise Wrong("spec.work: give either epochs or steps")
    ((name, value),) = given.items()
    kinds, least, most = (int | float, 0.001, 1e6) if name == "epochs" else (int, 1, 1e12)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        raise Wrong(f"spec.work.{name} is {value!r}: use {least:g} to {most:g}{'' if name == 'epochs' else ', whole'}")
    return (float(value), None) if name == "epochs" else (None, float(value))


def checkpoint_place(found: Any) -> tuple[str, str, str]:
    """A volume claim, or a store and its Secret."""
    if found is None or found.get("store") is None:
        if found is not None and found.get("secretName") is not None:
            raise Wrong("spec.checkpoints.secretName is for a store: give spec.checkpoints.store")
        return claim_name(found, "checkpoints"), "", ""
    store, secret = found["store"], found.get("secretName")
    if found.get("claimName") is not None:
        raise Wrong("spec.checkpoints: give either claimName or store")
    if isinstance(store, str) and _PASSWORD.match(store):
        raise Wrong("spec.checkpoints.store holds a password: put it into the Secret of spec.checkpoints.secretName")
    if not isinstance(store, str) or len(store) > _LONGEST_URL or not _URL.fullmatch(store):
        raise Wrong(plain_line(f"spec.checkpoints.store is {str(store)[:80]!r}: use a URL such as s3://bucket/prefix"))
    if secret is not None and not (isinstance(secret, str) and 1 <= len(secret) <= _LONGEST_CLAIM):
        raise Wrong(f"spec.checkpoints.secretName is {secret!r}: use the name of a Secret")
    return "", store.rstrip("/"), secret or ""


def last_on_delete(found: Any) -> bool:
    """Whether a last checkpoint is written before the job goes."""
    value = False if found is None else found.get("lastOnDelete", False)
    if not isinstance(value, bool):
        raise Wrong(f"spec.checkpoints.lastOnDelete is {value!r}: use true or false")
    return value


def check_no_last_checkpoint(found: Any) -> None:
    """Ranks write one whenever they are told to end, also by a deletion; nobody has to be kept waiting for it."""
    if last_on_delete(found):
        raise Wrong("spec.checkpoints.lastOnDelete is true: ranks write a checkpoint when they end; leave it out")


def claim_name(found: Any, name: str) -> str:
    """Name of a volume claim; empty where there is none."""
    if found is None:
        return ""
    claim = found.get("claimName")
    if claim is None:
        raise Wrong(f"spec.{name}.claimName is missing")
    if not isinstance(claim, str) or not 1 <= len(claim) <= _LONGEST_CLAIM:
        raise Wrong(f"spec.{name}.claimName is {claim!r}: use the name of a volume claim")
    return claim


def queue_name(found: Any) -> str:
    """Name of a queue of Kueue's; empty where there is none."""
    if found is None:
        return ""
    name = found.get("queueName")
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_CLAIM:
        raise Wrong(f"spec.kueue.queueName is {name!r}: use the name of a LocalQueue of its namespace")
    return name
