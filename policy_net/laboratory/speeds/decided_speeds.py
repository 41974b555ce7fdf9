"""Speeds that logged decisions show: what jobs trained between them, fitted by type, as a simulation's truth.

What was never tried is filled in by the form of the type's kind (`throughput.parametric`); the fewer sizes a log has
seen of a type, the more of it is assumption.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from policy_net.domain import SpeedModel
from policy_net.errors import BadInput

if TYPE_CHECKING:
    from policy_net.laboratory.logged import LoggedDecision

DECISIONS_PREFIX = "decisions:"
_CURRENT = "decisions.jsonl"
_CLOSED = re.compile(r"^decisions-(\d{6,})\.jsonl$")
_SLOT_SECONDS = 600.0
"""Of plain logs, which do not say it; no speed depends on it."""


def logged_decisions(path: Path) -> Iterator[LoggedDecision]:
    """All decisions of a log, or of a state directory's logs, in order.

    Raises:
        BadInput: there is none, or a line cannot be used.
    """
    # Every command that names a workload comes by here, and few of them read a log.
    from policy_net.laboratory.logged import DecisionFile  # noqa: PLC0415

    found = False
    for file in _files(path):
        for decision in DecisionFile(file, _SLOT_SECONDS):
            found = True
            yield decision
    if not found:
        raise BadInput(f"{path}: holds no decision; name an agent's state directory, or a decision log of it")


def speeds_of_decisions(path: Path) -> SpeedModel:
    """The speeds that a log shows.

    Raises:
        BadInput: as `logged_decisions`.
    """
    from policy_net.throughput.parametric import OnlineFit  # noqa: PLC0415

    fit = OnlineFit()
    for decision in logged_decisions(path):
        fit.observe(decision.observed)
        fit.introduce(decision.state.jobs)
    return fit


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    closed = sorted(file for file in path.iterdir() if _CLOSED.match(file.name))
    return closed + [file for file in (path / _CURRENT,) if file.exists()]
