"""What the demo's options set: how long its fleet lives, and how many rounds its clusters have."""

import pytest

from deploy.local.demo import DemoOptions
from deploy.local.plan import FLEETS, DemoPolicy


@pytest.mark.parametrize("policy", DemoPolicy)
@pytest.mark.parametrize("share", [None, 0.1, 1.0, 10.0])
def test_a_longer_demo_has_more_rounds_to_go_through_and_a_shorter_one_no_fewer(
    policy: DemoPolicy, share: float | None
) -> None:
    usual = FLEETS[policy]
    seconds = None if share is None else share * usual.seconds
    options = DemoOptions(policy=policy, seconds=seconds)
    assert options.settings.episodes == usual.episodes * max(1, round(share or 1))
    assert options.settings.seconds == (seconds or usual.seconds)
