"""Output of `policyctl rollout`: plain values for `-o json`, tables and calm lines for people."""

from __future__ import annotations

import json
import math
from collections import Counter

from foundation.figures import counted
from foundation.tables import NOTHING, Column, FactSheet, FittedTable
from global_learner.policyctl.views import Facts, facts_of, moment, version_name, whole_moment
from global_learner.registry.version_words import refused_words
from policy_net.exchange.generated import fleet_pb2

_EVENTS_SHOWN = 8
_EVENT_WORDS = {
    "start": "began",
    "seen": "heard on what {subject} acts",
    "away": "{subject} is away",
    "joined": "{subject} joined",
    "left": "{subject} left",
    "version-gone": "{subject} is gone",
}
"""Events whose word alone would not say what happened."""
_DAY_HOURS = 24.0
_ALTERNATING = ("canary", "wave", "fleet")
"""Stages that bring new clusters, which alternate."""
_NOBODY_NEW = "no further cluster: what the stages before brought decides, at once where it suffices"


_UNSET_OF_MEMBERS = ("acting_version", "refused_version", "refused_reason")
_UNSET_OF_SKETCHES = ("reason", "candidate_jct_seconds", "incumbent_jct_seconds", "heuristic_jct_seconds")
_UNSET_OF_QUERIES = ("fault", "asked_unix_seconds", "answered_unix_seconds", "since_unix_seconds")
"""Fields of which 0 or an empty text stands for nothing."""


def rollout_facts(rollout: fleet_pb2.Rollout) -> Facts:
    """A rollout as JSON shows it."""
    return {
        **facts_of(
            rollout,
            without=("stage", "plan_json", "members", "sketches", "queries", "verdicts", "events"),
            or_none=("reason", "why"),
        ),
        "stage": rollout.stages[rollout.stage] if rollout.stages else None,
        "stage_number": rollout.stage,
        "plan": json.loads(rollout.plan_json) if rollout.plan_json else None,
        "clusters": [
            facts_of(member, without=("since_stage",), or_none=_UNSET_OF_MEMBERS) for member in rollout.members
        ],
        "sketches": [facts_of(sketch, or_none=_UNSET_OF_SKETCHES) for sketch in rollout.sketches],
        "queries": [facts_of(query, or_none=_UNSET_OF_QUERIES) for query in rollout.queries],
        "verdicts": [
            {
                **facts_of(verdict, without=("stage",), or_none=("rests_on",)),
                "stage_number": verdict.stage,
                "loss_lower": _finite(verdict.loss_lower),
                "loss_upper": _finite(verdict.loss_upper),
            }
            for verdict in rollout.verdicts
        ],
        "events": [
            {
                **facts_of(event, or_none=("subject",)),
                "why": event.why or (rollout.why if event.what == "start" else "") or None,
            }
            for event in rollout.events
        ],
    }


def line_of(facts: Facts) -> str:
    """State of a rollout in one line, which changes only with it."""
    roles = Counter(entry["role"] for entry in facts["clusters"])
    shown = ", ".join(f"{count} {role}" for role, count in sorted(roles.items()))
    place = f"stage {facts['stage_number'] + 1}/{len(facts['stages'])} {facts['stage']}"
    reason = "".join(f"; {part}" for part in (facts["reason"], *refusals(facts)) if part)
    return f"rollout {facts['number']} of v{facts['candidate_version']}: {facts['phase']}, {place} ({shown}){reason}"


def refusals(facts: Facts) -> list[str]:
    """Why a rollout waits for clusters that refuse a version, and what to do, a line each."""
    return [
        f"{entry['cluster']} {refused_words(entry['refused_version'], entry['refused_reason'])}"
        for entry in facts["clusters"]
        if entry["refused_version"]
    ]


def rollout_table(facts: Facts) -> FittedTable:
    """A rollout with its clusters; the latest verdict and what happened last below."""
    columns = (
        Column("cluster"),
        Column("role", text=True),
        Column("acts\non"),
        Column("back\nto", 1),
        Column("blocks", 2),
        Column("alike/\nshadowed", 3),
    )
    rows = [
        (
            entry["cluster"],
            entry["role"] + (" (away)" if entry["away"] else ""),
            _acts_on(entry, facts),
            version_name(entry["incumbent_version"]),
            str(entry["blocks"]),
            f"{entry['shadow_agreed']}/{entry['shadow_decisions']}" if entry["shadow_decisions"] else NOTHING,
        )
        for entry in facts["clusters"]
    ]
    for_programs = [
        (
            row[0],
            entry["role"],
            "yes" if entry["away"] else "no",
            version_name(entry["incumbent_version"] if entry["role"] == "alternating" else entry["acting_version"]),
            version_name(facts["candidate_version"]) if entry["role"] == "alternating" else NOTHING,
            *row[3:5],
            *(
                str(entry[f"shadow_{what}"]) if entry["shadow_decisions"] else NOTHING
                for what in ("agreed", "decisions")
            ),
        )
        for entry, row in zip(facts["clusters"], rows, strict=True)
    ]
    shown_below = [{**entry, "refused_version": None} for entry in facts["clusters"]]
    line = line_of({**facts, "reason": None, "clusters": shown_below})
    return FittedTable(line, columns, rows, _below(facts), for_programs, _OF_PROGRAMS)


_OF_PROGRAMS = ("cluster", "role", "away", "acts on", "in turn with", "back to", "blocks", "alike", "shadowed")


def _acts_on(entry: Facts, facts: Facts) -> str:
    if entry["role"] == "alternating":
        return f"{version_name(entry['incumbent_version'])}/{version_name(facts['candidate_version'])}"
    return version_name(entry["acting_version"])


def history_table(rollouts: list[Facts]) -> FittedTable:
    """All rollouts, a line each."""
    columns = (
        Column("rollout"),
        Column("version"),
        Column("phase", text=True),
        Column("begun\nUTC", 3, text=True),
        Column("stage", 2, text=True),
        Column("by", 1, text=True),
        Column("why", words=True),
    )
    rows = [
        (
            str(facts["number"]),
            version_name(facts["candidate_version"]),
            facts["phase"],
            moment(facts["started_unix_seconds"]),
            facts["stage"] or NOTHING,
            facts["actor"],
            "; ".join(filter(None, (facts["why"], facts["reason"], _noted(facts)))),
        )
        for facts in rollouts
    ]
    for_programs = [
        (*row[:3], whole_moment(facts["started_unix_seconds"]), *row[4:])
        for facts, row in zip(rollouts, rows, strict=True)
    ]
    return FittedTable("", columns, rows, for_programs=for_programs)


def _noted(facts: Facts) -> str:
    return f"{version_name(facts['candidate_version'])}: {facts['note']}" if facts.get("note") else ""


def changes_table(facts: Facts) -> FactSheet:
    """Changes of a command, or those that it would make."""
    label = "would change" if facts["dry_run"] else "changed"
    rows = [(label if not number else "", line) for number, line in enumerate(facts["changes"] or ["nothing"])]
    if facts["dry_run"] and facts["changes"] and facts["changes"][0].startswith("rollout-started "):
        rows += stage_rows(facts)
    return FactSheet(line_of(facts), rows, [facts["note"]] if facts["note"] else [])


def longest(facts: Facts) -> str:
    """Longest time of the plan's stages together, in words."""
    stages = (facts["plan"] or {}).get("stages", ())
    days = sum(stage.get("days", stage.get("hours", 0.0) / _DAY_HOURS) for stage in stages)
    return f"which may take {days:g} days" if days != 1.0 else "which may take a day"


def stage_rows(facts: Facts) -> list[tuple[str, str]]:
    """The plan's stages, each with its clusters and its longest time; who is drawn is known once it begins."""
    eligible = {entry["cluster"] for entry in facts["clusters"] if entry["role"] not in ("pinned", "held")}
    taking_part, reached = len(eligible), 0
    rows = []
    for number, stage in enumerate((facts["plan"] or {}).get("stages", ())):
        clusters, count = f"all {taking_part} clusters", taking_part
        if stage["kind"] == "gate":
            clusters = "replays, no cluster"
        elif stage.get("clusters"):
            clusters, count = ", ".join(stage["clusters"]), len(eligible.intersection(stage["clusters"]))
        elif stage["kind"] == "canary":
            count = min(stage["count"], taking_part)
            clusters = f"{count} of {taking_part} clusters"
        elif stage["kind"] == "wave":
            count = math.ceil(stage["share"] * taking_part)
            clusters = f"{count} of {taking_part} clusters, with those before"
        if stage["kind"] in _ALTERNATING:
            clusters = _NOBODY_NEW if count <= reached else clusters
            reached = max(reached, count)
        time = f", {stage['hours']:g} hours" if "hours" in stage else ""
        time = f", at most {stage['days']:g} days" if "days" in stage else time
        rows.append((f"stage {number + 1}, {stage['kind']}", clusters + time))
    return rows


def _below(facts: Facts) -> list[str]:
    lines = [facts["reason"]] if facts["reason"] else []
    lines += [f"waits: {part}" for part in refusals(facts)]
    lines.append(_because(f"begun {moment(facts['started_unix_seconds'])} by {facts['actor']}", facts["why"]))
    states = Counter(sketch["state"] for sketch in facts["sketches"])
    if states:
        lines.append(
            "own work of clusters: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        )
    lines += [query["said"] for query in facts["queries"]]
    if facts["verdicts"]:
        verdict = facts["verdicts"][-1]
        lines.append(f"verdict {moment(verdict['unix_seconds'])}: {verdict['outcome']}{_shown_by(verdict)}")
        # A query's own line is newer than what a verdict said of it.
        lines += [f"  {reason}" for reason in verdict["reasons"] if not reason.startswith("query ")]
    for event in [event for event in facts["events"] if event["came_of_it"]][-_EVENTS_SHOWN:]:
        words = _EVENT_WORDS.get(event["what"], f"{event['what']} {{subject}}").format(subject=event["subject"] or "")
        lines.append(_because(f"{moment(event['unix_seconds'])} {event['actor']}: {words.rstrip()}", event["why"]))
    return lines


def _shown_by(verdict: Facts) -> str:
    """Evidence of a verdict: replays until a cluster acts on the version, then pairs of blocks."""
    pairs, known = verdict["pairs"], ""
    if verdict["rests_on"]:
        known = f"; what is known rests on {verdict['rests_on']} alone"
    elif verdict["loss_lower"] is not None and verdict["loss_upper"] is not None:
        what = "jobs in the system" if pairs else "time of jobs in replays"
        span = f"{verdict['loss_lower']:+.1%} to {verdict['loss_upper']:+.1%}"
        known = f"; {what} {verdict['loss']:+.1%} ({span}), + is worse"
    return f", {counted(pairs, 'pair')} of blocks{known}" if pairs else known


def _because(what: str, why: str | None) -> str:
    return f"{what}: {why}" if why else what


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
