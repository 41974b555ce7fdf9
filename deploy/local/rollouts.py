"""Two rollouts at the end of the fleet's life: of what it learned, and of a version made worse on purpose.

Nothing of it is played: plans, gate, assignments, blocks and verdicts are the learner's and the agents' own, as
`policyctl rollout` would have them. What is short are the stages, as a second here is hours of the clusters' time; the
margin is wider than usual, as a minute has few pairs of blocks (docs/guide/demo.md). What the canary stage is worth is
how likely it stops a version that is worse, as far as its own blocks tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.demonstration.frame import LONGEST_SECONDS, Demonstration, ProgressDeadline, write_yaml
from deploy.demonstration.processes import DemoFailed
from global_learner.policyctl.client import AdminClient
from global_learner.registry.registry import Registry
from global_learner.rollout.evidence_store import EvidenceStore
from global_learner.rollout.plan import VerdictSettings, read_plan
from global_learner.rollout.state import RolloutPhase, VersionRole
from global_learner.rollout.verdicts.evidence import pairs_of, scores_of
from global_learner.rollout.verdicts.power import DRAWS, STOPS_USUALLY, Power, least_stopped, power_at
from global_learner.rollout.verdicts.verdict import StageOutcome
from global_learner.storage.state_dir import StateDir
from policy_net.exchange.generated import fleet_pb2

LEAST_CLUSTERS = 2
"""In a fleet of one nobody can contradict it, so there is no verdict."""

STILL_SECONDS = 300.0
"""How long nothing at all may happen, no block, no decision, before the demo aborts a rollout, as an operator may."""
MOST_PAIRS = 30
"""Pairs of blocks of each cluster that alternates, after which it does so too; a verdict takes some ten."""

SHADOW_SECONDS = 2.0

VERDICT = {
    "margin_percent": 10,
    "latency_tolerance_seconds": 2,
    "shadow_failed_percent": 10,
}
"""The margin is what a minute's blocks can exclude. Where others use the machine too, decisions take long now and then,
whichever version makes them."""

MARGIN_WORDS = (
    f"(a margin of {VERDICT['margin_percent']}% is the demo's alone, as it has minutes; other plans have"
    f" {VerdictSettings().margin_percent:g}% unless set)"
)
"""Said of the first stage that passes by it."""
STAGE_WORDS = (
    "(gate: replays; shadow: it decides too, and nothing is carried out; canary: two clusters take turns between it and"
    " what acted before; fleet: all do)"
)
INCONCLUSIVE = "inconclusive"
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class StageEnd:
    """A stage that has its verdict, `pass` or `fail`, by so many pairs of blocks of all clusters."""

    kind: str
    outcome: str
    reason: str
    pairs: int


@dataclass(frozen=True, slots=True)
class RolloutEnd:
    """How a rollout ended.

    Attributes:
        incumbent: the version that clusters acted on before.
        foretold: the phase that it was to end in.
        ended: `done`, `rolled-back`, or `inconclusive` where no verdict came in time, and the demo aborted it.
        reason: why it is over, where it did not reach the fleet.
        acting: the version that all clusters act on since.
    """

    number: int
    version: int
    incumbent: int
    foretold: str
    ended: str
    reason: str
    stages: tuple[StageEnd, ...]
    acting: int
    seconds: float
    canaries: tuple[str, ...] = ()

    @property
    def is_otherwise(self) -> bool:
        """Whether a verdict was the opposite of what was foretold."""
        return self.ended not in (self.foretold, INCONCLUSIVE)

    @property
    def word(self) -> str:
        """How it ended, for people."""
        return "not decided" if self.ended == INCONCLUSIVE else self.ended

    def to_json(self) -> dict[str, Any]:
        """For `summary.json`."""
        return {**asdict(self), "stages": [asdict(stage) for stage in self.stages]}


def write_plan(path: Path) -> Path:
    """Write the plan of both rollouts, as an operator would."""
    days = LONGEST_SECONDS / 86_400.0  # in which the demo ends a rollout by itself
    stages = [
        {"kind": "gate"},
        {"kind": "shadow", "hours": SHADOW_SECONDS / 3600.0},
        {"kind": "canary", "count": LEAST_CLUSTERS, "days": days},
        {"kind": "fleet", "days": days},
    ]
    return write_yaml(path, {"stages": stages, "verdict": VERDICT})


class Rollouts:
    """Rollouts of one fleet, one after the other, by an operator's calls, all by one plan's file."""

    def __init__(
        self,
        client: AdminClient,
        clusters: Sequence[str],
        plan: Path,
        demo: Demonstration,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._clusters, self._plan = client, clusters, plan
        self._demo, self._clock = demo, clock
        self.say = demo.display.say

    def back_to_first(self) -> None:
        """Let every cluster act on v1, and wait until it does.

        Raises:
            DemoFailed: they do not.
        """
        self._client.ask(fleet_pb2.AssignVersionRequest(version=0, all=True))
        self._wait_for(1)

    def run(self, version: int, foretold: RolloutPhase) -> RolloutEnd:
        """Begin a rollout, report every stage, and wait for its end.

        Raises:
            DemoFailed: a process failed, or the learner does not carry the rollout out.
        """
        began = self._clock()
        incumbent = max(self._acting().values())
        plan_json = read_plan(self._plan).model_dump_json()
        start = fleet_pb2.StartRolloutRequest(version=version, plan_json=plan_json, reason="to show it")
        number = self._client.ask(start).rollout.number
        reported, aborted = 0, False
        deadline = ProgressDeadline(STILL_SECONDS, clock=self._clock)
        for _ in self._demo.polls(POLL_SECONDS):
            rollout = self._rollout(number)
            reported = self._report(rollout, reported)
            if rollout.phase in (RolloutPhase.DONE, RolloutPhase.ROLLED_BACK):
                break
            pairs = _pairs_of_each(rollout)
            if deadline.passed((rollout.stage, rollout.phase, self._decisions())) or pairs >= MOST_PAIRS:
                if aborted:
                    raise DemoFailed(f"rollout {number} of v{version} is {rollout.phase}, and does not end")
                aborted, stage = True, rollout.stages[rollout.stage]
                after = f"{deadline.waited_seconds:.0f} s" + (f" and {pairs} pairs of blocks" if pairs else "")
                self.say(f"  {stage}: no verdict after {after}, so the demo aborts the rollout")
                self._client.ask(fleet_pb2.ActOnRolloutRequest(action="abort"))
                deadline = ProgressDeadline(STILL_SECONDS, clock=self._clock)
        acting = version if rollout.phase == RolloutPhase.DONE else incumbent
        self._wait_for(acting)
        ended = INCONCLUSIVE if aborted else rollout.phase
        seconds, stages = self._clock() - began, tuple(judged(rollout))
        canaries = tuple(member.cluster for member in rollout.members if _is_canary(member, rollout))
        end = RolloutEnd(
            number, version, incumbent, foretold.value, ended, rollout.reason, stages, acting, seconds, canaries
        )
        self.say(f"  {end.word}: v{acting} acts in all clusters ({seconds:.0f} s)")
        return end

    def _report(self, rollout: fleet_pb2.Rollout, reported: int) -> int:
        stages = judged(rollout)
        for stage in stages[reported:]:
            self.say(f"  {stage.kind}: {stage.outcome}; {stage.reason}")
            if stage.kind == "canary" and stage.outcome == StageOutcome.PASS:
                self.say(f"    {MARGIN_WORDS}")
        self._demo.display.progress((rollout.stage + 1) / (len(rollout.stages) + 1))
        return len(stages)

    def _rollout(self, number: int) -> fleet_pb2.Rollout:
        reply: fleet_pb2.GetRolloutReply = self._client.ask(fleet_pb2.GetRolloutRequest(number=number))
        return reply.rollout

    def _acting(self) -> dict[str, int]:
        views = {view.cluster: view.status.acting_version for view in self._client.fleet().clusters}
        return {cluster: views.get(cluster, 0) for cluster in self._clusters}

    def _decisions(self) -> int:
        """Of all clusters, ever: as long as they decide, the rollout gets on."""
        return sum(int(view.status.decisions) for view in self._client.fleet().clusters)

    def _wait_for(self, version: int) -> None:
        deadline = ProgressDeadline(STILL_SECONDS, clock=self._clock)
        for _ in self._demo.polls(POLL_SECONDS):
            acting = self._acting()
            if set(acting.values()) == {version}:
                return
            if deadline.passed((*acting.values(), self._decisions())):
                raise DemoFailed(f"v{version} does not act in all clusters after {deadline.waited_seconds:.0f} s")


def _is_canary(member: fleet_pb2.RolloutMember, rollout: fleet_pb2.Rollout) -> bool:
    return member.HasField("since_stage") and rollout.stages[member.since_stage] == "canary"


def _pairs_of_each(rollout: fleet_pb2.Rollout) -> int:
    """Pairs of blocks that each of the clusters brought that alternate now, on average."""
    blocks = [int(member.blocks) for member in rollout.members if member.role == VersionRole.ALTERNATING]
    return sum(blocks) // (2 * len(blocks)) if blocks else 0


def judged(rollout: fleet_pb2.Rollout) -> list[StageEnd]:
    """The stages that have their verdict, in order; of a stage the verdict that ended it."""
    found: dict[int, StageEnd] = {}
    for verdict in rollout.verdicts:
        if verdict.outcome in (StageOutcome.PASS, StageOutcome.FAIL):
            reason = "; ".join(verdict.reasons)
            kind = rollout.stages[verdict.stage]
            found.setdefault(verdict.stage, StageEnd(kind, verdict.outcome, reason, verdict.pairs))
    return [found[stage] for stage in sorted(found)]


def why_none(clusters: Sequence[str], versions: int, working: bool) -> str:
    """Why a fleet is shown no rollouts; empty if it can be. It has so many versions, v1 among them."""
    if len(clusters) < LEAST_CLUSTERS:
        return f"it takes {LEAST_CLUSTERS} clusters, as no cluster decides by itself"
    if versions < 2:
        return "the fleet made no version of its own"
    return "" if working else "clusters are through with their work"


def both_rollouts(rollouts: Rollouts, made: int, worse: int) -> tuple[RolloutEnd, RolloutEnd]:
    """The rollout of the version that the fleet made, and that of the one made worse.

    Raises:
        DemoFailed: see `Rollouts.run`.
    """
    rollouts.back_to_first()
    rollouts.say(STAGE_WORDS)
    rollouts.say(f"rollout of v{made}, which this fleet made, in place of v1")
    first = rollouts.run(made, RolloutPhase.DONE)
    rollouts.say(f"rollout of v{worse}, which is v{made} made worse on purpose, with false beliefs of speeds")
    return first, rollouts.run(worse, RolloutPhase.ROLLED_BACK)


def contradiction(ends: Sequence[RolloutEnd]) -> str:
    """One line on the rollouts that a verdict ended otherwise than foretold; empty if there is none."""
    return "; ".join(
        f"the rollout of v{end.version} was to end {end.foretold} and ended {end.ended}"
        + (f" ({end.reason})" if end.reason else "")
        for end in ends
        if end.is_otherwise
    )


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
            f" without one, after {MOST_PAIRS} pairs)"
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
