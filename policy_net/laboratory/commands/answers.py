"""Answers of a replay: its results under other assumptions too, in sentences on the terminal, and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from policy_net.domain import PlacementEffect, PolicyContext, SpeedModel
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.report.caveats import beside_the_answer
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import as_recorded, certainty, fairness, money
from policy_net.laboratory.report.headline import headline, subline
from policy_net.laboratory.report.owners import FIELDS, owners_by
from policy_net.laboratory.report.spread import (
    ELASTIC_SHARES,
    KINDS,
    STALLS_SECONDS,
    AssumedCase,
    Assumptions,
    CaseReplays,
    SimulatedBase,
    World,
    spread_of,
    usual_cases,
)
from policy_net.laboratory.simulation.environment import DecideOn
from policy_net.laboratory.simulation.replay import ReplayResult, replay, uncovered
from policy_net.laboratory.workloads.loaders.record import Recording
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload
from policy_net.policy import decides_at_once
from policy_net.policy_kinds import load_policy


@dataclass(frozen=True)
class Setting:
    """Inputs of all replays of one workload.

    Attributes:
        recording: the file's jobs, read once; None for workloads that are no recording.
        policies: names and files as they were typed, in the order of the results; a policy has another name itself.
    """

    source: str
    recording: Recording | None
    options: WorldOptions
    truth: SpeedModel
    effect: PlacementEffect | None
    context: PolicyContext
    policies: tuple[str, ...]

    def typed(self, comparison: Comparison, result: ReplayResult) -> str:
        """Name by which a result's policy is loaded again."""
        named = zip(comparison.results, self.policies, strict=True)
        return next(name for of_result, name in named if of_result is result)


def with_spread(
    comparison: Comparison, setting: Setting, cases: int | None, on_case: Callable[[float], None] | None = None
) -> Comparison:
    """The comparison with its answer under other assumptions; unchanged where none can be made.

    Args:
        cases: most replays; None for as many as suit the workload.
    """
    base = (comparison.workload, comparison.environment)
    if not comparison.compares or comparison.workload.machines is None:
        return comparison
    today_name, proposed_name = (setting.typed(comparison, one) for one in (comparison.today, comparison.proposed))
    proposed = load_policy(proposed_name, setting.context)
    compiled = uncovered(*base, proposed, setting.truth, setting.effect) is None
    most = usual_cases(len(base[0].jobs), compiled=compiled) if cases is None else cases
    if not most:
        return comparison
    assumptions = _assumptions(setting.options)
    workloads: dict[tuple[JobKindChoice, int, float], Workload] = {_drawn(assumptions.base): base[0]}

    def world(case: AssumedCase) -> World:
        resize, resume = case.stall_seconds
        options = dataclasses.replace(
            setting.options,
            job_kind=case.kind,
            seed=case.seed,
            resize_seconds=resize,
            resume_seconds=resume,
            elastic_share=case.elastic_share,
        )
        drawn = _drawn(case)
        if drawn not in workloads:
            workloads[drawn] = options.workload(setting.source, setting.truth, setting.recording)
        return workloads[drawn], options.environment(workloads[drawn])

    def average_seconds(world: World, policy: str) -> float:
        result = replay(*world, load_policy(policy, setting.context), setting.truth, placement_effect=setting.effect)
        return comparison.avg_jct_seconds(result)

    answer = SimulatedBase(
        base,
        today_name,
        proposed_name,
        comparison.avg_jct_seconds(comparison.today),
        comparison.avg_jct_seconds(comparison.proposed),
    )
    replays = CaseReplays(world, average_seconds, setting.truth, places_matter=setting.effect is not None)
    return dataclasses.replace(comparison, spread=spread_of(answer, assumptions, replays, most, on_case))


def with_pace(comparison: Comparison, setting: Setting) -> Comparison:
    """The comparison, with the JCT if the proposed policy decided at every event, where that makes a difference.

    Left out where a second replay would take long.
    """
    workload, environment = comparison.workload, comparison.environment
    if not comparison.compares or environment.decide_on is DecideOn.SLOT or not environment.debounce_seconds:
        return comparison
    proposed = load_policy(setting.typed(comparison, comparison.proposed), setting.context)
    unpaced = dataclasses.replace(environment, debounce_seconds=0.0)
    if decides_at_once(proposed) or uncovered(workload, unpaced, proposed, setting.truth, setting.effect) is not None:
        return comparison
    result = replay(workload, unpaced, proposed, setting.truth, placement_effect=setting.effect)
    return dataclasses.replace(comparison, unpaced_jct_seconds=comparison.avg_jct_seconds(result))


def _drawn(case: AssumedCase) -> tuple[JobKindChoice, int, float]:
    """The part of a case on which a workload depends."""
    return case.kind, case.seed, case.elastic_share


def _assumptions(options: WorldOptions) -> Assumptions:
    """Assumptions to vary; those that the user stated stay."""
    stall = (options.resize_seconds, options.resume_seconds)
    share = 1.0 if options.elastic_share is None else options.elastic_share
    base = AssumedCase(options.job_kind or JobKindChoice.ALLREDUCE, options.seed, stall, share)
    return Assumptions(
        base,
        kinds=KINDS if options.job_kind is None else (base.kind,),
        stalls_seconds=(stall,) if any(stall) else STALLS_SECONDS,
        elastic_shares=ELASTIC_SHARES if options.elastic_share is None else (share,),
    )


def sentences(comparison: Comparison) -> Iterator[str]:
    """Sentences below the tables; the answer itself comes last."""
    if comparison.compares:
        for findings in (certainty, as_recorded, fairness, money):
            for finding in findings(comparison):
                yield f"{finding.topic}: {finding.text}"
    for caution in beside_the_answer(comparison):
        yield f"Caution: {caution}"
    yield subline(comparison)
    yield headline(comparison)


def json_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Every policy's figures, with what was recorded and, of the proposed policy, the answer and its range."""
    recorded = None if comparison.recorded is None else dataclasses.asdict(comparison.recorded)
    spread = comparison.spread
    beyond, capped = comparison.cut_jobs
    rows = []
    for result, figures in zip(comparison.results, comparison.figures, strict=True):
        tried = spread if result is comparison.proposed else None
        rows.append(
            {
                **figures,
                "jobs_beyond_cluster": beyond,
                "jobs_beyond_limit": capped,
                "recorded": recorded,
                "change_against_record": comparison.change_against_record(result),
                "elastic_share": comparison.elastic_share,
                "range": tried
                and {
                    "against": comparison.today.policy,
                    "replayed": len(tried.changes),
                    "planned": tried.planned,
                    "least_change": tried.least,
                    "most_change": tried.most,
                },
                "answer": _answer(comparison) if result is comparison.proposed else None,
            }
        )
    return rows


def _answer(comparison: Comparison) -> dict[str, Any]:
    """The headline for programs, with None where nothing was compared or tried. A change of -0.25 is a quarter less."""
    spread = comparison.spread
    after, before = (comparison.avg_jct_seconds(result) for result in (comparison.proposed, comparison.today))
    return {
        "sentence": headline(comparison),
        "policy": comparison.proposed.policy,
        "against": comparison.today.policy if comparison.compares else None,
        "avg_jct_seconds": after,
        "against_avg_jct_seconds": before if comparison.compares else None,
        "change": after / before - 1 if comparison.compares else None,
        "least_change": spread and spread.least,
        "most_change": spread and spread.most,
        "cautions": list(beside_the_answer(comparison)),
        "fairness": _fairness(comparison),
    }


def _fairness(comparison: Comparison) -> dict[str, dict[str, int]]:
    """Numbers of users, accounts and partitions, and of those that wait longer, or are done later, than under today's
    policy, simulated too, or than was recorded."""
    found = {}
    for field in FIELDS:
        owners = owners_by(comparison, field)
        if owners:
            found[field] = {
                "owners": len(owners),
                "wait_longer": sum(owner.waits_longer for owner in owners),
                "done_later": sum(owner.ends_later for owner in owners),
                "with_recorded_wait": sum(owner.recorded_wait_seconds is not None for owner in owners),
                "wait_longer_than_recorded": sum(owner.waits_longer_than_recorded for owner in owners),
            }
    return found
