"""Content of the report, as JSON: what `/report.json` answers, and what is inlined in the file.

The page draws; all that is worked out or said in sentences is made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from foundation.figures import counted
from global_learner.registry.version_words import damaged_words
from global_learner.report.events import act_events, fleet_events
from global_learner.report.fleet import attention, cluster_rows, interventions, reported_jobs
from global_learner.report.learning import learning_curve, lesson_section, staleness_histogram
from global_learner.report.load import load_section
from global_learner.report.reported_load import reported_load
from global_learner.report.rollouts import rollout_section, waiting
from global_learner.report.savings import ENDED, ReplayComparison, completion_times, headline
from global_learner.report.versions import Scores, comparable_scores, replayed_scores, taken_back_words, version_rows
from global_learner.report.words import against
from policy_net.exchange.generated import fleet_pb2

MOST_VERSIONS = 12
"""Rows: those on which clusters act come first."""


def acting_rows(
    clusters: Sequence[Mapping[str, Any]],
    cards: Sequence[fleet_pb2.VersionCard],
    judged: Mapping[int, Mapping[str, Any]],
    scores: Scores,
) -> list[dict[str, Any]]:
    """A row a version: those that act, newest first, then the first version and those that a rollout judged.

    Args:
        clusters: rows of the fleet; of a learner that has ended the assigned versions stand for those that act.
        judged: card of each version's latest rollout.
    """
    acts: dict[int, list[str]] = {}
    for row in clusters:
        if row["registered"]:
            version = row["assigned_version"] if row["acting_version"] is None else row["acting_version"]
            acts.setdefault(version, []).append(row["cluster"])
    known = {card.version: card for card in cards}
    others = ({1} & known.keys() | judged.keys()) - acts.keys()
    ordered = [*sorted(acts, reverse=True), *sorted(others, reverse=True)]
    return [
        {
            "version": version,
            "from": _from(known.get(version)),
            "clusters": acts.get(version, []),
            "score": scores.over.get(version),
            "fared": _fared(scores, version),
            "rollout": None if (card := judged.get(version)) is None else _judged(card),
        }
        for version in ordered[:MOST_VERSIONS]
    ]


def _judged(card: Mapping[str, Any]) -> dict[str, str]:
    back = card["tone"] == "bad" and card["said"]
    return {"word": card["word"], "tone": card["tone"], "said": card["said"][0] if back else ""}


def _from(card: fleet_pb2.VersionCard | None) -> str:
    if card is None:
        return ""
    if card.contributions:
        return "learned by this fleet"
    return "put in by an operator" if card.parent else "what the fleet began with"


def _fared(scores: Scores, version: int) -> str:
    if version not in scores.over:
        return "not replayed" if scores.replayed else "not scored"
    return against(scores.over[version], scores.baseline)


def report_content(
    report: fleet_pb2.GetReportReply,
    replays: ReplayComparison | None = None,
    ended: bool = False,
    named: bool = True,
) -> dict[str, Any]:
    """The page's content.

    Args:
        report: the learner's answer.
        replays: comparison after the run, if there is one.
        ended: the fleet is over, though its learner still answered; no score comes any more.
        named: the reader may see names and reasons of the audit log.
    """
    fleet = report.fleet
    rows = cluster_rows(fleet.clusters, report.identities, report.made_unix_seconds, report.ended)
    scores = (
        comparable_scores(report.versions)
        if replays is None
        else replayed_scores(replays.curve, replays.labels[replays.baseline])
    )
    versions, versions_left_out = version_rows(report.versions, fleet.clusters, scores, ended or report.ended)
    rollouts = rollout_section(report.rollouts, report.made_unix_seconds)
    judged = {card["version"]: card for card in reversed(rollouts["cards"])}  # the newest of each version
    acts = act_events(report.acts, {rollout["number"] for rollout in rollouts["cards"]}, named)
    return {
        "made_unix_seconds": report.made_unix_seconds,
        "headline": asdict(ENDED if report.ended else headline(fleet.clusters, replays)),
        "attention": [
            *([f"the learner: {fleet.disk_full}"] if fleet.disk_full else []),
            *(damaged_words(file.version, file.is_head) for file in fleet.damaged_files),
            *([] if report.ended else waiting(report.rollouts)),
            *attention(rows),
        ],
        "learner": {
            "head_step": fleet.head_step,
            "updates_accepted": fleet.updates_accepted,
            "updates_rejected": fleet.updates_rejected,
            "staleness_p50": fleet.staleness_p50,
            "latest_version": fleet.latest_version,
            "latest_taken_back": taken_back_words(fleet.latest_version, report.versions, judged),
            "disk_bytes": dict(sorted(fleet.disk_bytes.items())),
        },
        "enrolls": report.enrolls,
        "told": not report.ended,  # whether anything is known that only clusters can tell
        "clusters": rows,
        "acting": acting_rows(rows, report.versions, judged, scores),
        "rollouts": rollouts,
        "load": load_section(
            reported_load(fleet.clusters, report.made_unix_seconds) if replays is None else replays.load
        ),
        "completion": completion_times(fleet.clusters, replays),
        "learning": learning_curve(scores.points, scores.baseline, scores.of),
        "lessons": None if replays is None else lesson_section(replays.lessons),
        "score_over": scores.baseline or None,
        "staleness": _staleness(report),
        "interventions": interventions(fleet.clusters),
        "jobs": reported_jobs(fleet.clusters),
        "versions": versions,
        "versions_left_out": versions_left_out,
        "events": fleet_events(rows, report.versions, rollouts["cards"], report.made_unix_seconds, acts),
    }


def _staleness(report: fleet_pb2.GetReportReply) -> dict[str, Any] | None:
    counts = {entry.cluster: dict(entry.updates) for entry in report.staleness}
    latest = sum(sum(by_staleness.values()) for by_staleness in counts.values())
    return staleness_histogram(counts, f"the latest {counted(latest, 'applied update')}")
