"""Memory of an agent beyond its cluster's state: decisions counted, the guard's counts and past, beliefs of speeds.

Written before a decision is carried out, so that no decision number is used twice: an agent killed in between makes
the same decision again under the next number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster_agent.active_policy import ActivePolicy
from cluster_agent.errors import StateDamaged
from cluster_agent.monitor import DecisionMonitor, RecentPast
from cluster_agent.recording.state_files import read_json, write_json
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import JsonObject, digest_of_json
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.parametric import OnlineFit

MEMORY = "agent.json"
FORMAT = "fedl2-agent-1"


class AgentMemory:
    """Counts and beliefs on disk."""

    def __init__(
        self,
        state_dir: Path,
        beliefs: OnlineFit,
        active: ActivePolicy | None = None,
        shares: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Read what an earlier life left, if there was one.

        Args:
            beliefs: those of the reward, which have seen everything, whoever decided.
            active: holds the policies that plan on beliefs of their own. What was kept of them last is kept until
                there are others, and while a policy is busy with them. An assigned policy of another digest than before
                brings priors of its own.
            shares: whether a type's speeds are told to the fleet.

        Raises:
            StateDamaged: the file cannot be read back.
        """
        self._path = state_dir / MEMORY
        self.beliefs = beliefs
        self._active = active
        saved = _opened(self._path, read_json(self._path))
        try:
            self.decisions = int(saved["decisions"])
            self.interventions: dict[str, int] = dict(saved["interventions"])
            self.monitor = DecisionMonitor(beliefs, RecentPast.from_json(saved.get("past")))
            beliefs.restore(saved["beliefs"])
            self._acting_snapshot: dict[str, object] | None = saved.get("acting_beliefs")
            self._snapshot_digest: str = saved.get("acting_digest", "")
            self._challenger_snapshot: list[Any] | None = saved.get("held_beliefs")
            assigned = None if active is None else active.assigned_decider
            if assigned is not None and assigned.beliefs is not None:
                take_over(assigned.beliefs, self._acting_snapshot, beliefs)
                if self._acting_snapshot is None or self._snapshot_digest != assigned.candidate.identity.digest:
                    assigned.beliefs.leave_out_own(shares)
        except (KeyError, TypeError, ValueError, BadInput) as error:
            raise StateDamaged(f"{self._path}: damaged ({error}); remove it to start afresh") from error

    def challenger_believed(self, digest: str) -> dict[str, object] | None:
        """What the policy with this digest believed when it was the challenger last; None if another one was."""
        saved = self._challenger_snapshot
        return dict(saved[1]) if saved is not None and saved[0] == digest else None

    def save(self, decisions: int, interventions: Mapping[str, int]) -> None:
        """Keep the counts, the monitor's past, and what is believed now."""
        if self._active is not None:
            assigned, challenger = self._active.assigned_decider, self._active.challenger_decider
            acting = assigned.beliefs
            if acting is not None:
                self._acting_snapshot, self._snapshot_digest = acting.snapshot(), assigned.candidate.identity.digest
            believed = None if challenger is None else challenger.beliefs
            if challenger is not None and believed is not None:
                self._challenger_snapshot = [challenger.candidate.identity.digest, believed.snapshot()]
        content = {
            "format": FORMAT,
            "decisions": decisions,
            "interventions": dict(interventions),
            "beliefs": self.beliefs.snapshot(),
            "acting_beliefs": self._acting_snapshot,
            "acting_digest": self._snapshot_digest,
            "held_beliefs": self._challenger_snapshot,
            "past": self.monitor.past.to_json(),
        }
        write_json(self._path, content | {"digest": digest_of_json(content)})


def take_over(acting: GaussianProcessBeliefs, snapshot: Mapping[str, object] | None, seen: OnlineFit) -> None:
    """Let a policy that is new here go on from what its predecessor believed, else from what this cluster has seen.

    Raises:
        BadInput: it is no snapshot.
    """
    if snapshot is not None:
        acting.restore(snapshot)
    else:
        acting.begin_from_observations(seen)


def _opened(path: Path, saved: JsonObject | None) -> JsonObject:
    """What a file says, once it is known to be what was written.

    Raises:
        StateDamaged: it is not, or is of another format.
    """
    if saved is None:
        return {"decisions": 0, "interventions": {}, "beliefs": {}}
    if "format" not in saved:
        return saved  # from before there was one; what is in it is still checked value by value
    content = {key: value for key, value in saved.items() if key != "digest"}
    if saved["format"] != FORMAT:
        raise StateDamaged(
            f"{path}: of format {saved['format']!r}, this program reads {FORMAT!r}; start the program that wrote it, "
            "or remove the file to forget what this cluster has seen"
        )
    if saved.get("digest") != digest_of_json(content):
        raise StateDamaged(f"{path}: damaged (its digest is another); remove it to start afresh")
    return content
