"""References for bounds on new versions: the last beliefs about a type, and those that several clusters agreed on.

Both are of types that v1 does not know. None of it goes into a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from global_learner.beliefs.bounds import ALONE
from policy_net.domain import JobKind
from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic
from policy_net.throughput.fleet_priors import FARTHEST_SCALE, MOST_REPORTERS, weighted_median

Rows = Sequence[SpeedStatistic]
Types = Mapping[str, Rows]

FARTHEST_AGREED = FARTHEST_SCALE / 2
"""How far reports may be from what they agree on where nothing is agreed on yet: as the middle of two whose GPUs lie
generations apart."""


@dataclass(frozen=True, slots=True)
class BeliefStandard:
    """By job type.

    Attributes:
        silenced: what the last version to speak of it said, where the newest is silent though a cluster tells of it.
        agreed: what the last version said that enough clusters bore out within a quarter, of the splits that they had
            seen; before there was any, the first that was within `FARTHEST_AGREED` of enough.
    """

    silenced: Types = field(default_factory=dict)
    agreed: Types = field(default_factory=dict)

    def after(
        self, newest: Types, reports: Sequence[Types], first: Collection[tuple[str, JobKind]], enough: int
    ) -> BeliefStandard:
        """What counts once `newest` is out; only published versions count, so it may be called at any time.

        Args:
            newest: what the newest version says, by type.
            reports: what the clusters tell now, one a cluster, by type.
            first: types with the kinds that v1 gives them.
            enough: so many clusters have to bear out what is agreed on.
        """
        reported: dict[str, list[Rows]] = {}
        for report in reports:
            for job_type, rows in report.items():
                reported.setdefault(job_type, []).append(rows)
        agreed = dict(self.agreed)
        for job_type, rows in newest.items():
            of_type = reported.get(job_type, [])
            if (job_type, rows[0].kind) in first or len(of_type) < enough:
                continue
            of_type = of_type[:: -(-len(of_type) // MOST_REPORTERS)]
            stands = job_type in agreed and agreed[job_type][0].kind is rows[0].kind
            for within in (ALONE,) if stands else (ALONE, FARTHEST_AGREED):
                agreeing = [entries for entries in of_type if bears_out(entries, rows, within)]
                seen = Counter((entry.ps, entry.workers) for entries in agreeing for entry in entries)
                if firm := [entry for entry in rows if seen[entry.ps, entry.workers] >= enough]:
                    agreed[job_type] = firm
                    break
        silenced = {job_type: rows for job_type, rows in {**self.silenced, **newest}.items() if job_type in reported}
        return BeliefStandard(silenced, agreed)

    def without(self, out: Sequence[Types], reports: Sequence[Types]) -> BeliefStandard:
        """Less what nobody bears out but clusters that were turned out, whose reports are `out`."""

        def stands(job_type: str, rows: Rows) -> bool:
            theirs = any(bears_out(report.get(job_type, ()), rows) for report in out)
            return not theirs or any(bears_out(report.get(job_type, ()), rows) for report in reports)

        return BeliefStandard(
            {job_type: rows for job_type, rows in self.silenced.items() if stands(job_type, rows)},
            {job_type: rows for job_type, rows in self.agreed.items() if stands(job_type, rows)},
        )

    def needed(self, newest: Collection[str], next_one: Collection[str]) -> BeliefStandard:
        """Less what the newest version says itself, as long as the next one speaks of these types too."""
        spoken = set(newest) & set(next_one)
        silenced = {job_type: rows for job_type, rows in self.silenced.items() if job_type not in spoken}
        return BeliefStandard(silenced, self.agreed)


def bears_out(reported: Rows, rows: Rows, within: float = ALONE) -> bool:
    """Whether a report on a type says what a version says, by the median of their common splits, in log speed."""
    if not reported or reported[0].kind is not rows[0].kind:
        return False
    said = {(entry.ps, entry.workers): entry.mean_log_speed for entry in rows}
    common = [entry for entry in reported if (entry.ps, entry.workers) in said]
    if not common:
        return False
    gaps = np.array([entry.mean_log_speed - said[entry.ps, entry.workers] for entry in common])
    counts = np.array([min(entry.count, CLUSTER_COUNT) for entry in common], dtype=np.float64)
    return abs(weighted_median(gaps, counts)) <= within
