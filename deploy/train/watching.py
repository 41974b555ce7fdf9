"""Watch over the jobs while they run: what each has, how far it is, and what its script says of its loss."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.commands import JobLogs

_SAID = re.compile(
    r"epoch +(?P<epoch>\d+) .*?loss (?P<loss>[\d.]+)(?:.*?test accuracy (?P<accuracy>[\d.]+))?"
    r"(?:.*?test loss (?P<unseen>[\d.]+))?"
)


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a script about its training; the time is when it was seen, in seconds since the beginning."""

    seconds: float
    epoch: int
    loss: float
    accuracy: float | None
    unseen_loss: float | None


@dataclass(slots=True)
class Life:
    """One job, as it was seen.

    Attributes:
        held: from when on it held how many workers and PSs, and in which state; each differs from the one before.
        facts: what the agent said of it last.
    """

    name: str
    submitted_seconds: float
    held: list[tuple[float, int, int, str]] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    logs: JobLogs | None = None

    @property
    def ended(self) -> bool:
        """Whether the agent has said so."""
        return bool(self.facts.get("ended"))

    @property
    def ended_seconds(self) -> float:
        """When it ended, or was seen last."""
        return self.submitted_seconds + float(self.facts.get("ageSeconds", 0.0))


class JobWatch:
    """Asks the agent after all jobs.

    Args:
        client: of the agent.
        began_unix_seconds: the beginning of all times.
    """

    def __init__(self, client: JobClient, began_unix_seconds: float) -> None:
        self.lives: dict[str, Life] = {}
        self._client = client
        self._began = began_unix_seconds

    def poll(self, now_unix_seconds: float) -> None:
        """See how all jobs are now.

        Raises:
            AgentUnreachable: the agent does not answer.
        """
        now = now_unix_seconds - self._began
        for facts in self._client.call("jobs", {})["jobs"]:
            submitted = facts["submittedUnixSeconds"] - self._began
            life = self.lives.setdefault(facts["name"], Life(facts["name"], submitted))
            life.facts = facts
            size = (facts["workers"], facts["ps"], facts["state"])
            if size != (life.held[-1][1:] if life.held else (0, 0, "queued")):
                life.held.append((now, *size))
            self._read(life, now)

    def _read(self, life: Life, now: float) -> None:
        if life.logs is None:
            life.logs = JobLogs(Path(life.facts["log"]), Path(life.facts["logs"]))
        for line in life.logs.read(last=life.ended):
            found = _SAID.search(line.decode("utf-8", errors="replace"))
            if found is not None:
                accuracy, unseen = found["accuracy"], found["unseen"]
                life.said.append(
                    Said(
                        now,
                        int(found["epoch"]),
                        float(found["loss"]),
                        None if accuracy is None else float(accuracy),
                        None if unseen is None else float(unseen),
                    )
                )
