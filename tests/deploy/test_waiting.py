"""A deadline that progress puts off: on a busy machine the same takes longer, and is not given up."""

from deploy.demonstration.configs import FleetSettings
from deploy.demonstration.frame import ProgressDeadline
from deploy.local.fleet import learned_enough


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_has_passed_once_nothing_has_got_on_for_so_long() -> None:
    clock = Clock()
    deadline = ProgressDeadline(10.0, 100.0, clock)
    assert not deadline.passed("a")
    clock.now += 10.0
    assert not deadline.passed("a")
    clock.now += 0.1
    assert deadline.passed("a")
    assert round(deadline.waited_seconds, 1) == 10.1


def test_progress_puts_it_off_up_to_the_last_one() -> None:
    clock = Clock()
    deadline = ProgressDeadline(10.0, 100.0, clock)
    for step in range(11):
        assert not deadline.passed(step), "every nine seconds it gets on"
        clock.now += 9.0
    clock.now += 2.0
    assert deadline.passed("and on")


def test_learning_ends_with_its_updates_or_its_time_and_has_a_version_unless_updates_are_stuck() -> None:
    settings = FleetSettings(seconds=60.0, updates=400, publish_every_steps=10)
    assert not learned_enough(settings, 399, 59.0, stuck=False)
    assert learned_enough(settings, 400, 0.0, stuck=False)
    assert learned_enough(settings, 10, 60.0, stuck=False)
    assert not learned_enough(settings, 9, 2000.0, stuck=False), "an update in four minutes"
    assert learned_enough(settings, 3, 2000.0, stuck=True), "none comes any more"
