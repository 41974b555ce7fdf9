"""Overview of a rollout for people, from its state and its evidence, bounded whatever its size.

`policyctl` shows all of one rollout; the report the newest ones, thinned: verdicts that changed something and a share
of the others, and of the audit lines of single clusters only those of held ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from global_learner.rollout.evidence_store import EvidenceStore, KeptEvent, KeptVerdict
from global_learner.rollout.queries import ShownQuery
from global_learner.rollout.replays import FrozenSketch
from global_learner.rollout.rollout_store import RolloutRecord, RolloutStore
from global_learner.rollout.shadow import Shadowed

MOST_ROLLOUTS = 4
"""In a report; `policyctl rollout history` has all."""
MOST_VERDICTS = 160
"""Of each of them: more points than a chart can show apart."""
_OF_CLUSTERS, _HELD = "rollout-assigned ", "(held)"


@dataclass(frozen=True, slots=True)
class Overview:
    """A rollout and its evidence: blocks by cluster; verdicts and events, oldest first."""

    record: RolloutRecord
    blocks: Mapping[str, int]
    shadowed: Mapping[str, Shadowed]
    verdicts: Sequence[KeptVerdict]
    events: Sequence[KeptEvent]
    sketches: Sequence[FrozenSketch] = ()
    queries: Sequence[ShownQuery] = ()


def overview(
    record: RolloutRecord,
    evidence: EvidenceStore,
    sketches: Sequence[FrozenSketch] = (),
    queries: Sequence[ShownQuery] = (),
) -> Overview:
    """Overview of one rollout; the report has neither the gate's sketches nor the present stage's queries."""
    number = record.state.number
    return Overview(
        record,
        evidence.block_counts(number),
        evidence.shadowed(number),
        evidence.verdicts(number),
        evidence.events(number),
        sketches,
        queries,
    )


def latest_overviews(rollouts: RolloutStore, evidence: EvidenceStore) -> list[Overview]:
    """The newest rollouts for a report, newest first."""
    return [thinned(overview(record, evidence)) for record in rollouts.newest(MOST_ROLLOUTS)]


def thinned(shown: Overview) -> Overview:
    """The overview, thinned for the report."""
    return replace(shown, verdicts=thinned_verdicts(shown.verdicts), events=[_alone(each) for each in shown.events])


def thinned_verdicts(verdicts: Sequence[KeptVerdict], most: int = MOST_VERDICTS) -> list[KeptVerdict]:
    """At most `most` verdicts: first those where the outcome changes, then an even share of the others."""
    if len(verdicts) <= most:
        return list(verdicts)
    said = [(verdict.stage, verdict.outcome) for verdict in verdicts]
    last = len(verdicts) - 1
    edges = {
        place
        for place in range(len(verdicts))
        if place in (0, last) or said[place] != said[place - 1] or said[place] != said[place + 1]
    }
    edges = set(sorted(edges)[-most:])
    room = most - len(edges)
    others = [place for place in range(len(verdicts)) if place not in edges]
    edges |= {others[number * len(others) // room] for number in range(room)} if room else set()
    return [verdicts[place] for place in sorted(edges)]


def _alone(event: KeptEvent) -> KeptEvent:
    lines = tuple(line for line in event.came_of_it if not line.startswith(_OF_CLUSTERS) or line.endswith(_HELD))
    return replace(event, came_of_it=lines)
