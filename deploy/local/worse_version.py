"""A version that is worse on purpose, for a rollout that is to find it out: in the registry like any other, and signed.

What it believes of speeds is false: that a job trains e times as fast with every further task, without end. So a job is
given whatever is free, and the others wait for it. Its residual alone could not do much harm, whatever its weights:
with its sign turned, and thirty times as loud, jobs take 3% to 5% longer (docs/experiments.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from global_learner.registry.cards import VersionDetails, kind_of
from global_learner.registry.registry import Registry
from global_learner.storage.state_dir import StateDir
from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.policy import default_set_file

OBSERVATIONS = 10_000
"""That each false speed pretends to rest on: a cluster's own, some hundreds of a split, do not set it right."""


def publish_worse(state_dir: Path) -> tuple[int, int]:
    """Add a worse version than the newest to an ended learner's registry; the learner signs it as it starts.

    Returns:
        The newest version, and the worse one made of it.

    Raises:
        StateUnusable: the learner still runs, or left something unusable.
    """
    with StateDir(state_dir) as state, closing(Registry(state.path, state.commits)) as registry:
        versions = registry.versions()
        newest = max(card.version for card in versions)
        card, data = registry.policy_bytes(newest)
        policy = made_worse(parse_policy_file(data, f"v{newest}"))
        details = VersionDetails(
            policy=kind_of(policy), prior_statistics=len(policy.priors), notes=f"v{newest} made worse on purpose"
        )
        # There is one version of a head step, and none of a step that the log does not have yet: an earlier free one.
        taken = {each.head_step for each in versions}
        free = next((step for step in range(card.head_step - 1, 0, -1) if step not in taken), card.head_step + 1)
        worse = registry.publish(
            policy,
            free,
            time.time(),
            {},
            0.0,
            assign_all=False,
            details=details,
            head=registry.head_bytes(newest),
        )
    return newest, worse.version


def made_worse(content: PolicyFile) -> PolicyFile:
    """A `set` policy with false beliefs of every type that it, or the policy that ships, knows of."""
    card = {**content.card, "source": "made worse on purpose"}
    return replace(content, card=card, priors=tuple(_boundless((*content.priors, *default_set_file().priors))))


def _boundless(priors: Iterable[SpeedStatistic]) -> Iterator[SpeedStatistic]:
    """Of every type, in samples/s, as if each further task made it e times as fast; the smallest split makes 1."""
    kinds = {entry.job_type: entry.kind for entry in reversed(tuple(priors))}
    for job_type, kind in sorted(kinds.items()):
        for ps in range(1, MAX_TASKS_PER_ROLE + 1) if kind.uses_ps else (0,):
            for workers in range(1, MAX_TASKS_PER_ROLE + 1):
                more = max(ps - 1, 0) + workers - 1
                yield SpeedStatistic(job_type, kind, ps, workers, float(more), OBSERVATIONS)
