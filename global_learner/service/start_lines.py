"""Lines of a learner that starts: what its settings came to where they leave something open, or are not for all."""

from __future__ import annotations

import structlog

from global_learner.aggregation.settings import AggregationMode
from global_learner.settings import LearnerSettings
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.spec import WeightSpec

_log = structlog.get_logger()


def report_settings(settings: LearnerSettings, spec: WeightSpec, telemetry: LearnerTelemetry) -> None:
    """Say how versions come to act, how updates become steps, and in what these are counted."""
    _warn_of_auto_assign(settings)
    _report_aggregation(settings)
    _report_optimizer(settings, spec, telemetry)


def _warn_of_auto_assign(settings: LearnerSettings) -> None:
    if settings.publish.auto_assign:
        _log.warning(
            "auto-assign-enabled",
            meaning="every new version acts on every cluster at once, unjudged, unless policyctl assign holds it",
            advice="for simulations and demonstrations; elsewhere set publish.auto_assign to false",
        )


def _report_optimizer(settings: LearnerSettings, spec: WeightSpec, telemetry: LearnerTelemetry) -> None:
    """Say in what steps are counted, which the policy's kind decides where the settings do not."""
    only_replays = settings.only_replays(spec)
    telemetry.only_replays.set(float(only_replays))
    if settings.upstream is not None:
        _log.info("optimizer", policy=spec.policy, steps="the learner above takes them", only_replays=only_replays)
        return
    found = settings.optimizer_for(spec)
    _log.info(
        "optimizer",
        policy=spec.policy,
        units=found.units.value,
        chosen=settings.optimizer.units.value,
        learning_rate=found.learning_rate,
        decay_steps=found.decay_steps,
        only_replays=only_replays,
    )


def _report_aggregation(settings: LearnerSettings) -> None:
    chosen = settings.aggregation
    facts = {"mode": chosen.mode.value} | (
        {} if chosen.mode is AggregationMode.ASYNC else {"strategy": chosen.strategy}
    )
    if chosen.mode is AggregationMode.ROBUST:
        advice = "with one or two clusters nobody can be outvoted; set aggregation for another mode (docs/guide)"
        _log.info("aggregation", **facts, listen=settings.listen, advice=advice)
    else:
        _log.info("aggregation", **facts)
