"""Two rollouts at the end of the fleet's life: of what it learned, and of a version made worse on purpose.

Nothing of it is played: plans, gate, assignments, blocks and verdicts are the learner's and the agents' own, as
`policyctl rollout` would have them. What is short are the stages, as a second here is hours of the clusters' time; the
margin is wider than usual, as a minute has few pairs of blocks (docs/guide/demo.md). What the canary stage is worth is
how likely it stops a version that is worse, as far as its own blocks tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy.demonstration.frame import Demonstration, LearnerWatch, ProgressDeadline
from deploy.demonstration.processes import DemoFailed
from global_learner.registry.cards import VersionDetails, kind_of
from global_learner.registry.registry import Registry
from global_learner.rollout.evidence_store import EvidenceStore
from global_learner.rollout.plan import VerdictSettings, read_plan
from global_learner.rollout.state import RolloutPhase, VersionRole
from global_learner.rollout.verdicts.evidence import pairs_of, scores_of
from global_learner.rollout.verdicts.power import DRAWS, STOPS_USUALLY, Power, least_stopped, power_at
from global_learner.rollout.verdicts.verdict import StageOutcome
from global_learner.storage.state_dir import StateDir
from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.policy import default_set_file

LEAST_CLUSTERS = 2
"""In a fleet of one nobody can contradict it, so there is no verdict."""

STILL_SECONDS = 300.0
"""How long nothing at all may happen, no block, no decision, before the demo aborts a rollout, as an operator may."""
MOST_PAIRS = 30
"""Pairs of blocks of each cluster that alternates, after which it does so too; a verdict takes some ten."""

PLAN = read_plan(Path(__file__).with_name("rollout.yaml"))
MARGIN_WORDS = (
    f"(a margin of {PLAN.verdict.margin_percent:g}% is the demo's alone, as it has minutes; other plans have"
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


class Rollouts:
    """Rollouts of one fleet, one after the other, by an operator's calls, all by one plan."""

    def __init__(
        self,
        client: LearnerWatch,
        clusters: Sequence[str],
        demo: Demonstration,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._clusters = client, clusters
        self._demo, self._clock = demo, clock
        self.say = demo.display.say

    def run_both(self, made: int, worse: int) -> tuple[RolloutEnd, RolloutEnd]:
        """From v1 on the rollout of the version that the fleet made, then that of the one made worse.

        Raises:
            DemoFailed: see `run`.
        """
        self._client.ask(fleet_pb2.AssignVersionRequest(version=0, all=True))
        self._wait_for(1)
        self.say(STAGE_WORDS)
        self.say(f"rollout of v{made}, which this fleet made, in place of v1")
        first = self.run(made, RolloutPhase.DONE)
        self.say(f"rollout of v{worse}, which is v{made} made worse on purpose, with false beliefs of speeds")
        return first, self.run(worse, RolloutPhase.ROLLED_BACK)

    def run(self, version: int, foretold: RolloutPhase) -> RolloutEnd:
        """Begin a rollout, report every stage, and wait for its end.

        Raises:
            DemoFailed: a process failed, or the learner does not carry the rollout out.
        """
        began = self._clock()
        incumbent = max(self._acting().values())
        plan = PLAN.model_dump_json()
        start = fleet_pb2.StartRolloutRequest(version=version, plan_json=plan, reason="to show it")
        number = self._client.ask(start).rollout.number
        reported, aborted = 0, False
        deadline = ProgressDeadline(STILL_SECONDS, clock=self._clock)
        for _ in self._demo.polls(POLL_SECONDS):
            rollout = self._client.ask(fleet_pb2.GetRolloutRequest(number=number)).rollout
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
        end = RolloutEnd(
            number=number,
            version=version,
            incumbent=incumbent,
            foretold=foretold.value,
            ended=INCONCLUSIVE if aborted else rollout.phase,
            reason=rollout.reason,
            stages=tuple(judged(rollout)),
            acting=acting,
            seconds=self._clock() - began,
            canaries=tuple(
                member.cluster
                for member in rollout.members
                if member.HasField("since_stage") and rollout.stages[member.since_stage] == "canary"
            ),
        )
        self.say(f"  {end.word}: v{acting} acts in all clusters ({end.seconds:.0f} s)")
        return end

    def _report(self, rollout: fleet_pb2.Rollout, reported: int) -> int:
        stages = judged(rollout)
        for stage in stages[reported:]:
            self.say(f"  {stage.kind}: {stage.outcome}; {stage.reason}")
            if stage.kind == "canary" and stage.outcome == StageOutcome.PASS:
                self.say(f"    {MARGIN_WORDS}")
        self._demo.display.progress((rollout.stage + 1) / (len(rollout.stages) + 1))
        return len(stages)

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
        return f"{said}; its margin is {PLAN.verdict.margin_percent:g}%"

    def to_json(self) -> dict[str, Any]:
        """For `summary.json`."""
        return {
            "rollout": self.rollout,
            "margin": PLAN.verdict.margin_percent / 100.0,
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
    rule = PLAN.verdict.rule
    worse = power_at(scores, rule, WORSE, MOST_PAIRS)
    if worse is None:
        return None
    least = least_stopped(scores, rule, MOST_PAIRS)
    return CanaryPower(end.number, sum(map(len, scores.values())), worse, least)


OBSERVATIONS = 10_000
"""That each false speed pretends to rest on: a cluster's own, some hundreds of a split, do not set it right."""


def publish_worse(state_dir: Path) -> tuple[int, int]:
    """Add a worse version than the newest to an ended learner's registry, which it signs as it starts; both versions.

    An operator's own publication would not do: a running learner puts the fleet's beliefs into it.

    Raises:
        StateUnusable: the learner still runs, or left something unusable.
    """
    with StateDir(state_dir) as state, closing(Registry(state.path, state.commits)) as registry:
        versions = registry.versions()
        newest = max(card.version for card in versions)
        card, data = registry.policy_bytes(newest)
        policy = made_worse(parse_policy_file(data, f"v{newest}"))
        details = VersionDetails(
            policy=kind_of(policy), prior_statistics=len(policy.priors), notes=f"v{newest} made worse on purpose"
        )
        # There is one version of a head step, and none of a step that the log does not have yet: an earlier free one.
        taken = {each.head_step for each in versions}
        free = next((step for step in range(card.head_step - 1, 0, -1) if step not in taken), card.head_step + 1)
        head = registry.head_bytes(newest)
        worse = registry.publish(policy, free, time.time(), {}, 0.0, assign_all=False, details=details, head=head)
    return newest, worse.version


def made_worse(content: PolicyFile) -> PolicyFile:
    """A `set` policy with false beliefs of every type that it, or the policy that ships, knows of.

    It believes that a job trains e times as fast with every further task, without end, so a job is given whatever is
    free. Its residual alone could not do much harm: with its sign turned, and thirty times as loud, jobs take 3% to 5%
    longer (docs/experiments.md).
    """
    card = {**content.card, "source": "made worse on purpose"}
    return replace(content, card=card, priors=tuple(_boundless((*content.priors, *default_set_file().priors))))


def _boundless(priors: Iterable[SpeedStatistic]) -> Iterator[SpeedStatistic]:
    """Of every type, in samples/s, as if each further task made it e times as fast; the smallest split makes 1."""
    kinds = {entry.job_type: entry.kind for entry in reversed(tuple(priors))}
    for job_type, kind in sorted(kinds.items()):
        for ps in range(1, MAX_TASKS_PER_ROLE + 1) if kind.uses_ps else (0,):
            for workers in range(1, MAX_TASKS_PER_ROLE + 1):
                more = max(ps - 1, 0) + workers - 1
                yield SpeedStatistic(job_type, kind, ps, workers, float(more), OBSERVATIONS)
