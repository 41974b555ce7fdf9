"""The replay of a decision log: the same allocation, choices, probabilities and guard outcome, bit for bit.

One line is in memory at a time. A checkpoint builds policy and fallback and sets their beliefs; from there every
decision's beliefs follow from what the lines say that they were shown. What only time decided, a missed deadline, or a
cluster's lessons, whether the policy was taught enough, is taken from the log; what the fallback then did is made again
like everything else.

Where a challenger was held beside the acting policy, what it would have done is made again too. Its answer stands in
the line of the next decision, as it was given while the interval lasted. It is made again before that decision's
reports are shown to anybody, from beliefs of its own, which a checkpoint holds and reports sharpen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster_agent.active_policy import (
    Candidate,
    CandidateFactory,
    PolicyIdentity,
    decide_recorded,
    number_decision,
)
from cluster_agent.errors import PolicyNotKept, StateDamaged
from cluster_agent.guard import Guard, Intervention, Proposal
from cluster_agent.recording.decision_log import LOG_FORMAT, encode_samples
from cluster_agent.recording.log_reading import state_of
from cluster_agent.settings import PolicySettings
from policy_net.domain import ClusterState, Decision, PolicyContext, Trigger
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.state_codec import JsonObject, LogLine, decode_progress, encode_decision, read_lines
from policy_net.policy import SchedulerPolicy, build_policy, policy_names
from policy_net.set_policy.policy import DEFAULT_SET_FILE
from policy_net.settings import checked_settings
from policy_net.throughput.beliefs import Beliefs, beliefs_of

_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a line raises that has a good checksum and was not written by an agent."""
_BEFORE = ("beliefs_digest", "asked")
_AFTER = ("interventions", "reasons", "placement")
"""The fields that are compared before a decision's choices, and those after."""
_OF_CHALLENGER = ("beliefs_digest", "asked", "allocation", "interventions", "placement")
Found = tuple[str, str, Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field of a decision that came out differently, such as `workers`, `action 3` or `beliefs_digest`.

    `where` is its line in the log; `job` is empty where it is about no single job.
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
class LogReplayResult:
    """Counts of a replay; those of a challenger begin with `challenger`.

    Attributes:
        missing: decisions that are not in the log: they could not be written, or their lines were removed.
        unknown: could not be made again, as the policy was still at an earlier one when its beliefs were due.
        cut_short: lines that a killed agent left torn, as `file, line N`.
        programs: versions of fedl2 that wrote the log.
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
    challenger_decisions: int = 0
    challenger_different: int = 0
    challenger_unknown: int = 0


class Replayer:
    """Replays files one after another; every file stands for itself."""

    def __init__(self, finder: PolicyFinder) -> None:
        self._finder = finder
        self.result = LogReplayResult()
        self._expected: int | None = None
        self._before: _Situation | None = None

    def replay(self, path: Path) -> Iterator[LogReplayResult]:
        """Replay one file; yields the result so far after every decision.

        Raises:
            StateDamaged: the file was changed, or is no decision log.
            PolicyNotKept: a policy file is needed that nobody has.
        """
        situation: _Situation | None = None
        self._before = None
        try:
            for line in read_lines(path):
                where = f"{path}, line {line.number}"
                if line.content is None:
                    self.result.cut_short.append(where)
                elif line.is_checkpoint:
                    self._before, situation = situation, self._begin_from(where, line.content)
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
            fallback = build_policy(content["fallback"], PolicyContext(seed=settings.seed))
            if self._expected is not None:
                self.result.missing += max(content["number"] - self._expected, 0)
            acting = self._policy_of(where, content, settings)
            challenger = self._policy_of(where, content["beside"], settings) if content.get("beside") else None
            _set_beliefs(fallback, content["fallback_beliefs"])
            return _Situation(content["number"], acting, Guard(fallback, float("inf")), challenger)
        except _UNREADABLE as error:
            raise _damaged(where, "checkpoint", error) from error

    def _policy_of(self, where: str, content: JsonObject, settings: PolicySettings) -> _ReplayedPolicy:
        candidate = self._candidate(where, PolicyIdentity(**content["policy"]), settings)
        _set_beliefs(candidate.policy, content["beliefs"])
        return _ReplayedPolicy(candidate, known=not content["busy"])

    def _candidate(self, where: str, identity: PolicyIdentity, settings: PolicySettings) -> Candidate:
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
            if content["digest"] != situation.acting.candidate.identity.digest:
                raise StateDamaged(
                    f"{where}: by {content['policy']}, but no checkpoint made it active; lines are missing"
                )
            state = state_of(content)
            self._remake_challenger(where, situation, content)
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

    def _remake_challenger(self, where: str, situation: _Situation, content: JsonObject) -> None:
        logged = content.get("beside")
        if logged is None:
            return
        before = self._before if situation.fresh else situation
        made = None if before is None else before.challenged(logged)
        if made is None:
            self.result.challenger_unknown += 1
            return
        self.result.challenger_decisions += 1
        found = _fields(logged, made, _OF_CHALLENGER)
        if found is not None:
            _, name, before, after = found
            self.result.challenger_different += 1
            name = f"{name} of {logged['policy']}, which did not act"
            difference = Difference(where, int(logged["number"]), "", name, before, after)
            self.result.first = self.result.first or difference


def _damaged(where: str, what: str, error: Exception) -> StateDamaged:
    reason = " ".join(str(error).split())[:200]
    return StateDamaged(f"{where}: the {what} cannot be read ({type(error).__name__}: {reason})")


@dataclass
class _ReplayedPolicy:
    """A policy from a checkpoint on, and whether what it believes is known."""

    candidate: Candidate
    known: bool

    def digest(self, logged: JsonObject) -> str | None:
        """Of what it believes, if the log has it too."""
        beliefs = beliefs_of(self.candidate.policy)
        return None if beliefs is None or logged["beliefs_digest"] is None else beliefs.digest()

    def proposal(self, logged: JsonObject, number: int, state: ClusterState, trigger: Trigger) -> Proposal:
        """Its answer, made again; whether it was asked, late, and taught enough by its cluster, is as it was logged."""
        number_decision(self.candidate.policy, number)
        if not logged["asked"]:
            return Proposal(None, None, 0.0, TimeoutError(), asked=False)
        late = Intervention.DEADLINE.value in logged["interventions"]
        try:
            decision, samples = decide_recorded(self.candidate.policy, state, trigger)
        except Exception as error:  # as the agent does
            return Proposal(None, None, 0.0, TimeoutError() if late else error)
        if not late:
            untaught = "as logged" if Intervention.UNTAUGHT.value in logged["interventions"] else ""
            return Proposal(decision, samples, 0.0, untaught=untaught)
        # A policy that was late has thought all the same, which its beliefs show, and perhaps it did answer.
        return Proposal(None, None if logged.get("actions") is None else samples, 0.0, TimeoutError())


@dataclass(frozen=True, slots=True)
class _LoggedSurprise:
    """A monitor that finds exceptional what was found so: the past that it was measured against is not in the log."""

    found: bool

    def surprise(self, decision: Decision, state: ClusterState, kind: str, *, acts: bool = True) -> str:  # noqa: ARG002
        return "as logged" if self.found else ""


@dataclass
class _Situation:
    """The policies and the guard from a checkpoint on: `number` is due, `latest` tells of the latest decision."""

    number: int
    acting: _ReplayedPolicy
    guard: Guard
    challenger: _ReplayedPolicy | None = None
    latest: tuple[int, ClusterState, Trigger] | None = None
    fresh: bool = True

    def decide(self, content: JsonObject, state: ClusterState) -> dict[str, Any] | None:
        """Make one decision; what can be compared of it, None if its beliefs are not known."""
        if not self.fresh:  # a checkpoint has seen already what came before it
            progress = [decode_progress(row) for row in content["observed"]]
            if "fallback" in content["observed_by"]:
                self.guard.fallback.observe(progress)
            if "policy" in content["observed_by"]:
                self.acting.candidate.policy.observe(progress)
            if "beside" in content["observed_by"] and self.challenger is not None:
                self.challenger.candidate.policy.observe(progress)
        self.fresh = False
        self.number += 1
        number, trigger = content["number"], Trigger(content["trigger"])
        self.latest = number, state, trigger
        digest = self.acting.digest(content)
        proposal = self.acting.proposal(content, number, state, trigger)
        self.guard.monitor = _LoggedSurprise(Intervention.EXCEPTIONAL in content["interventions"])
        guarded = self.guard.decide(proposal, state, trigger)
        if content["asked"] and not self.acting.known:
            return None
        return {
            "beliefs_digest": digest,
            "asked": guarded.asked,
            **encode_samples(guarded.samples),
            "interventions": [intervention.value for intervention in guarded.interventions],
            **encode_decision(guarded.decision),
        }

    def challenged(self, logged: JsonObject) -> dict[str, Any] | None:
        """What the challenger would have done at the latest decision, made again.

        None where that was another policy, or another decision, or its beliefs are not known.
        """
        challenger = self.challenger
        if challenger is None or self.latest is None or self.latest[0] != logged["number"]:
            return None
        if logged["digest"] != challenger.candidate.identity.digest:
            return None
        _, state, _ = self.latest
        digest = challenger.digest(logged)
        self.guard.monitor = _LoggedSurprise(Intervention.EXCEPTIONAL in logged["interventions"])
        made = self.guard.judge_challenger(challenger.proposal(logged, *self.latest), state)
        return None if logged["asked"] and not challenger.known else made.to_json() | {"beliefs_digest": digest}


def _set_beliefs(policy: SchedulerPolicy, checkpoint: Any) -> None:
    beliefs: Beliefs | None = beliefs_of(policy)
    if beliefs is not None and checkpoint is not None:
        beliefs.go_on_from(checkpoint)


class PolicyFinder:
    """Looks policy files up by digest, in folders; every file is read once at most, and believed by its bytes alone."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._by_digest: dict[str, Path] | None = None

    def find(self, digest: str) -> bytes | None:
        """The file with this digest; None if no folder has it."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                data = (folder / f"{digest}.safetensors").read_bytes()
                if digest_of(data) == digest:
                    return data
        path = self._index().get(digest)
        return None if path is None else path.read_bytes()

    def _index(self) -> dict[str, Path]:
        if self._by_digest is None:
            files = [path for folder in self._folders for path in sorted(folder.glob("*.safetensors"))]
            self._by_digest = {digest_of(path.read_bytes()): path for path in files}
        return self._by_digest


def default_finder(log: Path, folders: list[Path]) -> PolicyFinder:
    """Looks in the named folders, beside the log, and at the policy that ships with the package."""
    folder = log if log.is_dir() else log.parent
    return PolicyFinder([*folders, folder / "policies", DEFAULT_SET_FILE.parent])
