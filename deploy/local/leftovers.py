"""What a demo leaves behind is for looking at: moments, which only a learner that goes on needs, are not kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from global_learner.registry.registry import Registry
from global_learner.storage.state_dir import StateDir


def drop_moments(state_dir: Path) -> int:
    """Remove the moments of all versions but the newest from an ended learner's state; of how many.

    Under `dl2` a demo publishes some 180 versions: 1.4 MB each for the policy, which replaying a decision log needs,
    and three times that for the moments.

    Raises:
        StateUnusable: the learner still runs, or left something unusable.
    """
    with StateDir(state_dir) as state, closing(Registry(state.path)) as registry:
        return registry.forget_moments()
