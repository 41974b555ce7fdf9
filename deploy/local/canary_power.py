"""What the demo's canary stage is worth: how likely it stops a version that is worse, as far as its own blocks tell."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.rollouts import MOST_PAIRS, VERDICT, RolloutEnd
from global_learner.registry.registry import Registry
from global_learner.rollout.evidence_store import EvidenceStore
from global_learner.rollout.plan import VerdictSettings
from global_learner.rollout.verdicts.evidence import pairs_of, scores_of
from global_learner.rollout.verdicts.power import DRAWS, STOPS_USUALLY, Power, least_stopped, power_at
from global_learner.storage.state_dir import StateDir

WORSE = 0.1
"""What the demo says the chances of: a version with so many more jobs in the system."""


@dataclass(frozen=True, slots=True)
class CanaryPower:
    """What the canary stage would do with worse versions, drawn from the blocks that it saw; see `power`.

    Attributes:
        pairs: of blocks, from which is drawn.
        worse: of a version that is `WORSE`.
        least: of the least of some round losses that is stopped in four of five; None where none of them is.
    """

    rollout: int
    pairs: int
    worse: Power
    least: Power | None

    @property
    def words(self) -> str:
        """For people, in a sentence."""
        worse = self.worse
        said = (
            f"a version {worse.loss:.0%} worse would be stopped by its canary stage in {worse.stops:.0%} of {DRAWS}"
            f" rollouts drawn from its {self.pairs} pairs of blocks ({worse.fails:.0%} by a verdict, {worse.asks:.0%}"
            f" for want of one after {MOST_PAIRS} pairs)"
        )
        if self.least is None:
            said += f", in {STOPS_USUALLY:.0%} only one that is far worse"
        elif self.least.loss != worse.loss:
            said += f", one {self.least.loss:.0%} worse in {self.least.stops:.0%}"
        return f"{said}; its margin is {VERDICT['margin_percent']}%"

    def to_json(self) -> dict[str, Any]:
        """For `summary.json`."""
        return {
            "rollout": self.rollout,
            "margin": VERDICT["margin_percent"] / 100.0,
            "pairs": self.pairs,
            "worse": {"loss": self.worse.loss, "stopped": self.worse.stops, "by_verdict": self.worse.fails},
            "least_loss_stopped_in_four_of_five": None if self.least is None else self.least.loss,
        }


def canary_power(end: RolloutEnd, state_dir: Path) -> CanaryPower | None:
    """What the canary stage of a rollout is worth, from the ended learner's records; None where it saw too little.

    Raises:
        StateUnusable: the learner still runs, or left something unusable.
    """
    with StateDir(state_dir) as state, closing(Registry(state.path, state.commits)) as registry:
        blocks = EvidenceStore(registry).brought(end.number).blocks
    scores = {cluster: scores_of(pairs_of(blocks.get(cluster, ()))) for cluster in end.canaries}
    rule = VerdictSettings.model_validate(VERDICT).rule
    worse = power_at(scores, rule, WORSE, MOST_PAIRS)
    if worse is None:
        return None
    least = least_stopped(scores, rule, MOST_PAIRS)
    return CanaryPower(end.number, sum(map(len, scores.values())), worse, least)
