"""Fit of a policy's spec and a learner's settings; apart from what learns, so that a check loads nothing of that."""

from __future__ import annotations

from global_learner.aggregation.modes import build_aggregator
from global_learner.errors import BadLearnerConfig
from global_learner.settings import LearnerSettings
from global_learner.storage.update_records import RECORD_BYTES
from policy_net.exchange.spec import Spec

_USUAL_LOG_BYTES = 512 << 20


def check_fits(settings: LearnerSettings, spec: Spec) -> None:
    """See that policies of a spec can be learned under these settings, before anything is begun.

    Raises:
        BadConfig: they cannot.
    """
    max_log_bytes(settings, spec)
    build_aggregator(settings.aggregation, settings.optimizer_for(spec), spec)


def max_log_bytes(settings: LearnerSettings, spec: Spec) -> int:
    """The limit of the log's size.

    Raises:
        BadConfig: so few updates fit that the log could not be cut while others are written.
    """
    update_bytes = 4 * spec.parameter_count + RECORD_BYTES
    limit = settings.durability.max_log_bytes
    if limit is None:
        return max(_USUAL_LOG_BYTES, 32 * update_bytes)
    if limit < 16 * update_bytes:
        raise BadLearnerConfig(
            f"setting durability.max_log_bytes = {limit}: this policy's gradient takes {update_bytes} bytes of log, "
            f"and 16 of them must fit: name {16 * update_bytes} or more, or leave it out"
        )
    return limit
