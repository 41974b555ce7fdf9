"""Verdict on the shadow stage: whether the candidate decides in time, and within what the guard lets pass.

Nothing is carried out there, so nothing can be said of completion times. A candidate fails that gives no decision, or
that the guard would change more often than the incumbent, in two clusters; a single one is held instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from global_learner.rollout.plan import VerdictSettings
from global_learner.rollout.verdicts.verdict import StageOutcome, Verdict

_LEAST_CLUSTERS = 2
"""Clusters with enough decisions, before the stage passes by itself."""


@dataclass(frozen=True, slots=True)
class Shadowed:
    """Sums of a cluster since it began to shadow.

    Attributes:
        decisions: computed by both versions.
        agreed: of them, both gave every job the same.
        failed: of them, the candidate gave none, or too late.
        incumbent_interventions, candidate_interventions: of the guard; the candidate's hypothetical.
        believed_gain: mean log of the candidate's believed progress over the incumbent's.
    """

    decisions: int
    agreed: int = 0
    failed: int = 0
    incumbent_interventions: int = 0
    candidate_interventions: int = 0
    incumbent_latency_p99_seconds: float = 0.0
    candidate_latency_p99_seconds: float = 0.0
    believed_gain: float = 0.0

    def faults(self, settings: VerdictSettings) -> list[str]:
        """Faults of the candidate in this cluster, for people."""
        if self.decisions < settings.shadow_decisions:
            return []
        found = []
        failed = self.failed / self.decisions
        if failed > settings.shadow_failed_percent / 100.0:
            found.append(f"no decision in time in {failed:.1%}")
        more = (self.candidate_interventions - self.incumbent_interventions) / self.decisions
        if more > settings.shadow_guard_percent / 100.0:
            found.append(f"the guard would step in in {more:.1%} more")
        return found


def judge_shadow(
    shadowed: Mapping[str, Shadowed], of_stage: Collection[str], settings: VerdictSettings, *, time_over: bool
) -> Verdict:
    """The verdict so far; it passes when the stage's hours are over, and may fail before.

    Args:
        shadowed: of every cluster that sent something.
        of_stage: clusters that shadow now, and are there.
    """
    faults = {cluster: found for cluster, own in sorted(shadowed.items()) if (found := own.faults(settings))}
    reasons = tuple(f"{cluster}: {', '.join(found)}" for cluster, found in faults.items())
    if len(faults) >= _LEAST_CLUSTERS:
        return Verdict(StageOutcome.FAIL, reasons=reasons)
    faulty = tuple(faults)
    enough = [
        cluster
        for cluster in of_stage
        if cluster not in faulty and cluster in shadowed and shadowed[cluster].decisions >= settings.shadow_decisions
    ]
    if not time_over:
        return Verdict(StageOutcome.WAIT, held=faulty, reasons=reasons)
    if len(enough) < _LEAST_CLUSTERS:
        few = f"{len(enough)} clusters computed {settings.shadow_decisions} decisions twice; it takes {_LEAST_CLUSTERS}"
        return Verdict(StageOutcome.INCONCLUSIVE, held=faulty, reasons=(*reasons, few))
    decisions = sum(shadowed[cluster].decisions for cluster in enough)
    agreed = sum(shadowed[cluster].agreed for cluster in enough) / decisions
    gain = sum(shadowed[cluster].believed_gain * shadowed[cluster].decisions for cluster in enough) / decisions
    passed = (
        f"{len(enough)} clusters, {decisions} decisions made twice: in {agreed:.1%} of them every job got the same; "
        f"believed progress of all jobs {math.expm1(gain):+.1%}, + is faster"
    )
    return Verdict(StageOutcome.PASS, held=faulty, reasons=(*reasons, passed))
