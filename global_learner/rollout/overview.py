"""Overview of a rollout: what people are shown of it, from its state and its evidence, bounded whatever its size.

`policyctl` is shown all of one rollout, the report the newest ones, thinned: of verdicts those that changed something
and a share of the others, of what came of events not the line of every cluster, but of those that were held.
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
    """A rollout with what people are shown of it.

    Attributes:
        blocks: that each cluster brought.
        verdicts, events: oldest first.
    """

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
    """One rollout, with all that is shown of it.

    Args:
        sketches: with which its gate began; the report leaves them out.
        queries: of the present stage; the report has their words in its verdicts.
    """
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
    """The newest rollouts as a report has them, newest first; at most one of them runs, the first."""
    return [thinned(overview(record, evidence)) for record in rollouts.newest(MOST_ROLLOUTS)]


def thinned(shown: Overview) -> Overview:
    """An overview as the report has it."""
    return replace(shown, verdicts=thinned_verdicts(shown.verdicts), events=[_alone(each) for each in shown.events])


def thinned_verdicts(verdicts: Sequence[KeptVerdict], most: int = MOST_VERDICTS) -> list[KeptVerdict]:
    """So many verdicts at most: first those where the outcome changes, of the others as many as there is room for."""
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
