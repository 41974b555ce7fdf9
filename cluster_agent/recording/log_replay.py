"""The replay of a decision log: the same allocation, choices, probabilities and guard outcome, bit for bit.

One line is in memory at a time. A checkpoint builds policy and fallback and sets their beliefs; from there every
decision's beliefs follow from what the lines say that they were shown. What only time decided, a missed deadline, is
taken from the log; what the fallback then did is made again like everything else. Where a second policy was held
beside the acting one, what it would have done is made again too (`beside_replay.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster_agent.acting.active_policy import Candidate, CandidateFactory, Identity, number_decision
from cluster_agent.acting.deadline import decide_recorded
from cluster_agent.errors import PolicyNotKept, StateDamaged
from cluster_agent.guard import Guard, Intervention, Proposal
from cluster_agent.recording.beside_replay import OtherPolicy, differing_field
from cluster_agent.recording.decision_log import PolicyFinder, state_of
from cluster_agent.recording.decision_record import LOG_FORMAT, encode_samples
from cluster_agent.settings import PolicySettings
from policy_net.domain import ClusterState, PolicyContext, Trigger
from policy_net.errors import BadInput
from policy_net.exchange.log_lines import LogLine, read_lines
from policy_net.exchange.state_codec import JsonObject, decode_progress, encode_decision
from policy_net.policy import SchedulerPolicy, build_policy, policy_names
from policy_net.set_policy.policy import DEFAULT_SET_FILE
from policy_net.settings import checked_settings
from policy_net.throughput.beliefs import Beliefs, beliefs_of

_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a line raises that has a good checksum and was not written by an agent."""
_BEFORE = ("beliefs_digest", "asked")
_AFTER = ("interventions", "reasons", "placement")
"""The fields that are compared before a decision's choices, and those after."""
Found = tuple[str, str, Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field of a decision that came out differently.

    Attributes:
        where: the line.
        number: of the decision.
        job: whose; empty where it is about no single job.
        field: such as `workers`, `action 3` or `beliefs_digest`.
    """

    where: str
    number: int
    job: str
    field: str
    logged: Any
    recomputed: Any

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        whose = f", job {self.job}" if self.job else ""
        return (
            f"decision {self.number}{whose}, {self.field}: logged {self.logged!r}, recomputed {self.recomputed!r}"
            f" ({self.where})"
        )


def first_difference(where: str, logged: JsonObject, made: dict[str, Any]) -> Difference | None:
    """Compare in the order in which a decision comes about: believed, chosen, allocated, and what became of it."""
    found = _fields(logged, made, _BEFORE) or _choices(logged, made) or _grants(logged, made)
    found = found or _fields(logged, made, _AFTER)
    if found is None:
        return None
    job, name, before, after = found
    return Difference(where, int(logged["number"]), job, name, before, after)


def _fields(logged: JsonObject, made: dict[str, Any], names: tuple[str, ...]) -> Found | None:
    return next((("", name, logged[name], made[name]) for name in names if logged[name] != made[name]), None)


def _choices(logged: JsonObject, made: dict[str, Any]) -> Found | None:
    """The first choice that differs, or its probability."""
    for key, name in (("actions", "action"), ("behaviour", "probability of action")):
        before, after = logged[key], made[key]
        if before == after:
            continue
        if before is None or after is None:
            return "", key, before, after
        for index, pair in enumerate(zip(before, after, strict=False)):
            if pair[0] != pair[1]:
                return "", f"{name} {index}", *pair
        return "", f"number of {key}", len(before), len(after)
    return None


def _grants(logged: JsonObject, made: dict[str, Any]) -> Found | None:
    before, after = logged["allocation"], made["allocation"]
    if before == after:
        return None
    for job in (*before, *(job for job in after if job not in before)):
        for position, role in enumerate(("workers", "ps")):
            pair = tuple(None if side.get(job) is None else side[job][position] for side in (before, after))
            if pair[0] != pair[1]:
                return job, role, *pair
    return None


@dataclass
class ReplayResult:
    """What came of a replay.

    Attributes:
        decisions: how many were made again.
        different: how many of them came out differently.
        missing: how many are not in the log, as they could not be written, or their lines were removed.
        unknown: how many could not be made again, as the policy was still at an earlier one when its beliefs were due.
        cut_short: lines that a killed agent left torn, as `file, line N`.
        programs: versions of fedl2 that wrote the log.
        beside: how many decisions of a policy that did not act were made again; of these `beside_different` came out
            differently. `beside_unknown` could not be made again.
    """

    decisions: int = 0
    different: int = 0
    missing: int = 0
    unknown: int = 0
    checkpoints: int = 0
    first: Difference | None = None
    cut_short: list[str] = field(default_factory=list)
    programs: set[str] = field(default_factory=set)
    policies: dict[str, int] = field(default_factory=dict)
    beside: int = 0
    beside_different: int = 0
    beside_unknown: int = 0


class Replayer:
    """Replays files one after another; every file stands for itself."""

    def __init__(self, finder: PolicyFinder) -> None:
        self._finder = finder
        self.result = ReplayResult()
        self._expected: int | None = None
        self._other_before: OtherPolicy | None = None

    def replay(self, path: Path) -> Iterator[ReplayResult]:
        """Replay one file; yields the result so far after every decision.

        Raises:
            StateDamaged: the file was changed, or is no decision log.
            PolicyNotKept: a policy file is needed that nobody has.
        """
        situation: _Situation | None = None
        self._other_before = None
        try:
            for line in read_lines(path):
                where = f"{path}, line {line.number}"
                if line.content is None:
                    self.result.cut_short.append(where)
                elif line.is_checkpoint:
                    self._other_before = None if situation is None else situation.other
                    situation = self._begin_from(where, line.content)
                elif situation is None:
                    raise StateDamaged(f"{where}: a decision before any checkpoint; the beginning of the file is gone")
                else:
                    self._decide(where, situation, line)
                    yield self.result
        except BadInput as error:
            raise StateDamaged(str(error)) from error

    def _begin_from(self, where: str, content: JsonObject) -> _Situation:
        self.result.checkpoints += 1
        try:
            if content["format"] != LOG_FORMAT:
                raise StateDamaged(f"{where}: log format {content['format']}, this program reads {LOG_FORMAT}")
            self.result.programs.add(str(content["program"]))
            settings = checked_settings(content["settings"], PolicySettings, f"{where}: settings")
            identity = Identity(**content["policy"])
            candidate = self._candidate(where, identity, settings)
            fallback = build_policy(content["fallback"], PolicyContext(seed=settings.seed))
            if self._expected is not None:
                self.result.missing += max(content["number"] - self._expected, 0)
            _set_beliefs(candidate.policy, content["beliefs"])
            _set_beliefs(fallback, content["fallback_beliefs"])
            guard = Guard(fallback, float("inf"))
            other = self._other(where, content.get("beside"), guard, settings)
            return _Situation(content["number"], candidate, guard, not content["busy"], other)
        except _UNREADABLE as error:
            raise _damaged(where, "checkpoint", error) from error

    def _other(
        self, where: str, content: JsonObject | None, guard: Guard, settings: PolicySettings
    ) -> OtherPolicy | None:
        if content is None:
            return None
        candidate = self._candidate(where, Identity(**content["policy"]), settings)
        _set_beliefs(candidate.policy, content["beliefs"])
        return OtherPolicy(candidate, guard, known=not content["busy"])

    def _candidate(self, where: str, identity: Identity, settings: PolicySettings) -> Candidate:
        if identity.digest in policy_names():
            return Candidate(build_policy(identity.digest, PolicyContext(seed=settings.seed)), identity)
        data = self._finder.find(identity.digest)
        if data is not None:
            return CandidateFactory(settings).from_bytes(data, identity)
        if identity.name.startswith("head-"):
            hint = "weights of the learner's head are not kept; with policy.acting: assigned they would be a version's"
        else:
            hint = "name a folder that has the file with --policies, such as the learner's store of versions"
        raise PolicyNotKept(f"{where}: policy {identity.name} (digest {identity.digest[:12]}) is not at hand; {hint}")

    def _decide(self, where: str, situation: _Situation, line: LogLine) -> None:
        content = line.content
        assert content is not None  # noqa: S101  (the caller looked; narrows the type)
        try:
            if content["number"] != situation.number:
                raise StateDamaged(
                    f"{where}: decision {content['number']} where {situation.number} is due; lines are missing"
                )
            if content["digest"] != situation.candidate.identity.digest:
                raise StateDamaged(
                    f"{where}: by {content['policy']}, but no checkpoint made it active; lines are missing"
                )
            state = state_of(content)
            self._remake_other(where, situation, content)
            made = situation.decide(content, state)
            difference = None if made is None else first_difference(where, content, made)
        except _UNREADABLE as error:
            raise _damaged(where, "decision", error) from error
        self._expected = situation.number
        if made is None:
            self.result.unknown += 1
            return
        self.result.decisions += 1
        name = str(content["policy"])
        self.result.policies[name] = self.result.policies.get(name, 0) + 1
        if difference is not None:
            self.result.different += 1
            self.result.first = self.result.first or difference

    def _remake_other(self, where: str, situation: _Situation, content: JsonObject) -> None:
        """Make again what the other policy would have done at the decision before."""
        logged = content.get("beside")
        other = self._other_before if situation.fresh else situation.other
        if logged is None:
            return
        made = None if other is None else other.decide(logged)
        if made is None:
            self.result.beside_unknown += 1
            return
        self.result.beside += 1
        found = differing_field(logged, made)
        if found is not None:
            name, before, after = found
            self.result.beside_different += 1
            number = int(logged["number"])
            difference = Difference(
                where, number, "", f"{name} of {logged['policy']}, which did not act", before, after
            )
            self.result.first = self.result.first or difference


def _damaged(where: str, what: str, error: Exception) -> StateDamaged:
    reason = " ".join(str(error).split())[:200]
    return StateDamaged(f"{where}: the {what} cannot be read ({type(error).__name__}: {reason})")


@dataclass
class _Situation:
    """The policy that decides, and its guard, from a checkpoint on.

    Attributes:
        number: of the decision that is due.
        known: whether what the policy believes is known.
        other: the policy beside it, if there is one.
    """

    number: int
    candidate: Candidate
    guard: Guard
    known: bool
    other: OtherPolicy | None = None
    fresh: bool = True

    def decide(self, content: JsonObject, state: ClusterState) -> dict[str, Any] | None:
        """Make one decision; what can be compared of it, None if its beliefs are not known."""
        policy = self.candidate.policy
        if not self.fresh:  # a checkpoint has seen already what came before it
            progress = [decode_progress(row) for row in content["observed"]]
            if "fallback" in content["observed_by"]:
                self.guard.fallback.observe(progress)
            if "policy" in content["observed_by"]:
                policy.observe(progress)
            if "beside" in content["observed_by"] and self.other is not None:
                self.other.observe(progress)
        self.fresh = False
        self.number += 1
        asked = content["asked"]
        beliefs = beliefs_of(policy)
        digest = None if beliefs is None or content["beliefs_digest"] is None else beliefs.digest()
        number_decision(policy, content["number"])
        if self.other is not None:
            self.other.asked_of = (content["number"], state, Trigger(content["trigger"]))
        late = Intervention.DEADLINE.value in content["interventions"]

        def ask(state: ClusterState, trigger: Trigger) -> Proposal:
            if not asked:
                return Proposal(None, None, 0.0, TimeoutError(), asked=False)
            try:
                decision, samples = decide_recorded(policy, state, trigger)
            except Exception as error:  # as the agent does
                return Proposal(None, None, 0.0, TimeoutError() if late else error)
            if not late:
                return Proposal(decision, samples, 0.0)
            # A policy that was late has thought all the same, which its beliefs show, and perhaps it did answer.
            return Proposal(None, None if content["actions"] is None else samples, 0.0, TimeoutError())

        guarded = self.guard.decide(ask, state, Trigger(content["trigger"]))
        if asked and not self.known:
            return None
        return {
            "beliefs_digest": digest,
            "asked": guarded.asked,
            **encode_samples(guarded.samples),
            "interventions": [intervention.value for intervention in guarded.interventions],
            **encode_decision(guarded.decision),
        }


def _set_beliefs(policy: SchedulerPolicy, checkpoint: Any) -> None:
    beliefs: Beliefs | None = beliefs_of(policy)
    if beliefs is not None and checkpoint is not None:
        beliefs.go_on_from(checkpoint)


def default_finder(log: Path, folders: list[Path]) -> PolicyFinder:
    """Looks in the named folders, beside the log, and at the policy that ships with the package."""
    beside = log if log.is_dir() else log.parent
    return PolicyFinder([*folders, beside / "policies", DEFAULT_SET_FILE.parent])
