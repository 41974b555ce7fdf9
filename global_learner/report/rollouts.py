"""Section of rollouts: where each stands in an operator's words, its stages and clusters, and what happened in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from foundation.figures import counted, shown
from global_learner.registry.version_words import refused_words
from global_learner.report.rollout_stages import Stages
from global_learner.report.words import listed, moment
from global_learner.rollout.plan import RolloutPlan
from global_learner.storage.audit import KEEPER
from policy_net.exchange.generated import fleet_pb2

OVER = ("done", "rolled-back")
_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "running": ("running", "now"),
        "asking": ("waits for you", "warn"),
        "paused": ("paused", "warn"),
        "rolling-back": ("going back", "bad"),
        "rolled-back": ("rolled back", "bad"),
        "done": ("done", "good"),
    }
)
"""Phases as people say them, and how much they matter."""
_KINDS = ("canary", "wave", "fleet")
"""Stages whose clusters alternate; a gate's figure is of something else."""
_NO_JOB = -1.0
"""Loss where no job would be left; lower bounds beyond it come from few blocks."""


def evidence(rollout: fleet_pb2.Rollout, plan: RolloutPlan) -> dict[str, Any] | None:
    """Points over time, a finding, and the margin; None before the first verdict on clusters that alternate.

    The bounds are those of the verdicts: they hold at all moments at once, whichever cluster is left out.
    """
    points = [
        _point(verdict, rollout)
        for verdict in rollout.verdicts
        if verdict.pairs and verdict.stage < len(plan.stages) and plan.stages[verdict.stage].kind in _KINDS
    ]
    if not points:
        return None
    return {
        "version": rollout.candidate_version,
        "margin": plan.verdict.margin_percent / 100.0,
        "points": points,
        "finding": _finding(points[-1], rollout),
    }


def _point(verdict: fleet_pb2.RolloutVerdict, rollout: fleet_pb2.Rollout) -> dict[str, Any]:
    known = verdict.HasField("loss_at_least") and verdict.HasField("loss_at_most")
    return {
        "seconds": max(verdict.unix_seconds - rollout.started_unix_seconds, 0.0),
        "stage": verdict.stage,
        "pairs": verdict.pairs,
        "estimate": verdict.loss if known and not verdict.rests_on else None,
        "rests_on": verdict.rests_on or None,
        "least": max(verdict.loss_at_least, _NO_JOB) if known else None,
        "most": verdict.loss_at_most if known else None,
        "outcome": verdict.outcome,
    }


def _finding(point: dict[str, Any], rollout: fleet_pb2.Rollout) -> str:
    version = rollout.candidate_version
    after = f"after {counted(point['pairs'], 'pair')} of blocks"
    if point["outcome"] == "fail" and (point["least"] is None or point["least"] <= 0.0):
        return f"It failed by another test than the band, {after}."
    if point["least"] is None:
        return f"Nothing is known yet of v{version}, {after}."
    least, most = point["least"], point["most"]
    known = f"between {_share(least)} and {_share(most)}"
    if least > 0.0 or most < 0.0:
        known = f"at least {_share(least if least > 0.0 else most)}"
    elif least <= _NO_JOB:
        known = f"at most {_share(most)}"
    alone = point["rests_on"]
    estimate = f"the estimate rests on {alone} alone" if alone else f"{_share(point['estimate'])} by estimate"
    return f"With v{version} the clusters have {known} jobs in the system, {after}: {estimate}."


def _share(loss: float) -> str:
    return f"{abs(loss):.1%} {'more' if loss >= 0.0 else 'fewer'}"


def rollout_section(rollouts: Sequence[fleet_pb2.Rollout], now: float) -> dict[str, Any]:
    """The newest rollouts, newest first, and how many older ones there are; `now` is in Unix seconds."""
    return {
        "cards": [_card(rollout, now) for rollout in rollouts],
        "left_out": min((rollout.number for rollout in rollouts), default=1) - 1,
    }


def waiting(rollouts: Sequence[fleet_pb2.Rollout]) -> list[str]:
    """A sentence for each rollout that waits for an operator."""
    sentences = {
        "asking": "waits for an operator: promote or abort it",
        "paused": "is paused: resume or abort it",
    }
    return [
        f"rollout {rollout.number} of v{rollout.candidate_version} {sentences[rollout.phase]}"
        for rollout in rollouts
        if rollout.phase in sentences
    ]


def _card(rollout: fleet_pb2.Rollout, now: float) -> dict[str, Any]:
    plan = RolloutPlan.model_validate_json(rollout.plan_json)
    stages = Stages(rollout, plan)
    word, tone = _WORDS.get(rollout.phase, (rollout.phase, "now"))
    if _is_undecided(rollout):
        word, tone = "not decided", "warn"
    return {
        "number": rollout.number,
        "version": rollout.candidate_version,
        "over": rollout.phase in OVER,
        "word": word,
        "tone": tone,
        "title": _title(rollout, stages),
        "said": [*_said(rollout, plan, stages, now), *_refused(rollout)],
        "started_unix_seconds": rollout.started_unix_seconds,
        "ended_unix_seconds": rollout.latest_unix_seconds if rollout.phase in OVER else None,
        "actor": rollout.actor,
        "why": rollout.why,
        "stages": stages.rows,
        "evidence": evidence(rollout, plan),
        "clusters": [_member(member, rollout, plan, stages) for member in _in_order(rollout.members)],
        "history": _history(rollout, stages),
    }


def _is_undecided(rollout: fleet_pb2.Rollout) -> bool:
    """Whether an operator ended it before a verdict: nothing was found against the version."""
    aborted = any(event.what == "abort" for event in rollout.events)
    return rollout.phase == "rolled-back" and aborted and not any(v.outcome == "fail" for v in rollout.verdicts)


def _title(rollout: fleet_pb2.Rollout, stages: Stages) -> str:
    version = f"v{rollout.candidate_version}"
    acting = _with_role(rollout, "candidate")
    stood = {
        "done": f"reached the fleet: it acts in {counted(len(acting), 'cluster')}",
        "rolled-back": f"was {'aborted' if _is_undecided(rollout) else 'taken back'} in {stages.present}",
        "rolling-back": "is being taken back",
        "paused": f"is paused in {stages.present}",
        "asking": f"waits for an operator in {stages.present}",
    }.get(rollout.phase)
    return f"{version} {stood or _doing(rollout, acting)}"


def _doing(rollout: fleet_pb2.Rollout, acting: Sequence[str]) -> str:
    if alternating := _with_role(rollout, "alternating"):
        turns = f"takes turns with what acted before in {listed(alternating)}"
        return f"{turns}, and acts in {counted(len(acting), 'other cluster')}" if acting else turns
    if shadowing := _with_role(rollout, "shadow"):
        return f"decides beside what acts in {counted(len(shadowing), 'cluster')}; nothing is carried out"
    return f"acts in {counted(len(acting), 'cluster')}" if acting else "is replayed before any cluster is touched"


def _with_role(rollout: fleet_pb2.Rollout, role: str) -> list[str]:
    return [member.cluster for member in rollout.members if member.role == role]


def _said(rollout: fleet_pb2.Rollout, plan: RolloutPlan, stages: Stages, now: float) -> list[str]:
    if rollout.phase in ("rolled-back", "rolling-back"):
        return [stages.why_back, _still_there(rollout)]
    if rollout.phase == "done":
        left = [member.cluster for member in rollout.members if member.role in ("held", "pinned")]
        return [f"Left as they were: {listed(left, 6)}."] if left else []
    frozen = plan.freeze_end(now)
    held_up = [f"The plan's freeze lets no stage begin before {moment(frozen)}."] if frozen is not None else []
    if rollout.phase == "paused":
        paused = next((event for event in reversed(rollout.events) if event.what == "pause"), None)
        said = rollout.reason.removeprefix("by an operator")
        who = f"{paused.actor} paused it{said}" if paused is not None and said != rollout.reason else rollout.reason
        return [f"{who}. A version that fails still goes back; policyctl rollout resume goes on.", *held_up]
    if rollout.phase == "asking":
        unknown = "; ".join(stages.reasons(rollout.stage))
        said = f"The stage's time is over without a verdict{f': {unknown}' if unknown else ''}."
        return [
            said,
            "policyctl rollout promote begins the next stage, policyctl rollout abort takes it back.",
            *held_up,
        ]
    return held_up


def _refused(rollout: fleet_pb2.Rollout) -> list[str]:
    return [
        f"Waits for {member.cluster}: it {refused_words(member.refused_version, shown(member.refused_reason))}."
        for member in rollout.members
        if member.refused_version
    ]


def _still_there(rollout: fleet_pb2.Rollout) -> str:
    behind = [
        member
        for member in rollout.members
        if member.role != "pinned" and member.acting_version == rollout.candidate_version != member.incumbent_version
    ]
    away = [member.cluster for member in behind if member.away]
    there = [member.cluster for member in behind if not member.away]
    if there:
        return f"Told to go back, and not yet heard that they did: {listed(there, 6)}."
    if away:
        return f"Every cluster that is there acts on what it had before; {listed(away, 6)} will on their return."
    return "Every cluster acts again on what it had before."


def _in_order(members: Sequence[fleet_pb2.RolloutMember]) -> list[fleet_pb2.RolloutMember]:

    def place(member: fleet_pb2.RolloutMember) -> tuple[bool, int, str]:
        stage = member.since_stage if member.HasField("since_stage") else 99
        return member.role not in ("held", "pinned"), stage, member.cluster

    return sorted(members, key=place)


def _member(
    member: fleet_pb2.RolloutMember, rollout: fleet_pb2.Rollout, plan: RolloutPlan, stages: Stages
) -> dict[str, Any]:
    reported = rollout.candidate_version if member.role == "candidate" else member.incumbent_version
    back, candidate = f"v{member.incumbent_version}", f"v{rollout.candidate_version}"
    acts = {"alternating": f"{back} and {candidate} in turn", "shadow": f"{back}; {candidate} beside it"}.get(
        member.role
    )
    late = acts is None and member.role != "pinned" and member.acting_version not in (0, reported)
    if acts is None:
        acts = f"v{member.acting_version or reported}"
    return {
        "cluster": member.cluster,
        "stage": stages.name(member.since_stage) if member.HasField("since_stage") else None,
        "role": member.role,
        "tone": {"held": "bad", "candidate": "good"}.get(member.role, "idle"),
        "away": member.away,
        "acts": f"{acts}, told v{reported}" if late else acts,
        "back": back,
        "blocks": member.blocks,
        "shadow_decisions": member.shadow_decisions,
        "shadow_agreed": member.shadow_agreed,
        "note": _note(member, rollout, plan),
    }


def _note(member: fleet_pb2.RolloutMember, rollout: fleet_pb2.Rollout, plan: RolloutPlan) -> str:
    if member.role == "held":
        return "did worse by itself; it stays with what it had"
    if member.role != "pinned":
        return ""
    if member.cluster in plan.pinned:
        return "pinned by the plan"
    pins = [event for event in rollout.events if event.what == "pin" and event.subject == member.cluster]
    if not pins:
        return "pinned: an operator had assigned its version before"
    return f"pinned by {pins[-1].actor}" + (f": {pins[-1].why}" if pins[-1].why else "")


def _history(rollout: fleet_pb2.Rollout, stages: Stages) -> list[dict[str, Any]]:
    return [
        {
            "unix_seconds": event.unix_seconds,
            "actor": event.actor if event.actor != KEEPER else None,
            "text": text,
            "why": event.why or (rollout.why if event.what == "start" else ""),
            "alert": event.what == "verdict" and event.subject in ("fail", "inconclusive"),
        }
        for event in reversed(rollout.events)
        if (text := _happened(event, rollout, stages))
    ]


def _happened(event: fleet_pb2.RolloutEvent, rollout: fleet_pb2.Rollout, stages: Stages) -> str:
    held = [line.split()[1].rstrip(":") for line in event.came_of_it if line.startswith("rollout-assigned ")]
    at = stages.at(event.number)
    begins = stages.entered_by(event.number)
    over = any(line.startswith(("rollout-rolled-back ", "rollout-done ")) for line in event.came_of_it)
    match event.what:
        case "start":
            text = f"began to bring v{rollout.candidate_version} to the fleet"
        case "verdict":
            words = {"pass": "passed", "fail": "failed", "inconclusive": "brought no verdict: an operator is asked"}
            text = f"{at} {words[event.subject]}" if event.subject in words else ""
            text = "; ".join(filter(None, [text, f"held: {listed(held, 6)}" if held else ""]))
        case "promote":
            text = f"promoted it past {at}"
        case "pin":
            text = f"pinned {event.subject}"
        case "joined":
            text = f"joined: {event.subject}"
        case "left":
            text = f"turned out: {event.subject}"
        case "version-gone":
            text = f"the file of {event.subject} is gone"
        case "pause" | "resume" | "abort":
            text = f"{event.what}{'d' if event.what != 'abort' else 'ed'} it"
        case _:
            text = ""
    if begins:
        text = f"{text}; {begins} begins" if text else f"{begins} begins"
    if over:
        ended = "the rollout is done" if rollout.phase == "done" else "all that are there act on what they had before"
        text = f"{text}; {ended}" if text else ended
    return text if event.actor != KEEPER else text[:1].upper() + text[1:]
