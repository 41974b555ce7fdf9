"""A deadline that progress puts off: on a busy machine the same takes longer, and is not given up."""

from deploy.demonstration.frame import ProgressDeadline
from deploy.local.fleet import LearningTime


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


def test_learning_ends_with_its_updates_or_its_time() -> None:
    clock = Clock()
    learning = LearningTime(60.0, 400, 10, 300.0, clock)
    assert not learning.over(399)
    assert learning.over(400)
    clock.now += 60.0
    assert learning.over(10)
    assert learning.share(0) == 1.0


def test_on_a_slow_machine_it_goes_on_to_the_first_version_as_long_as_updates_come() -> None:
    clock = Clock()
    learning = LearningTime(60.0, 400, 10, 300.0, clock)
    for updates in range(10):
        assert not learning.over(updates), "an update in four minutes"
        clock.now += 240.0
    assert learning.over(10)
    alone = LearningTime(60.0, 400, 10, 300.0, clock)
    assert not alone.over(3)
    clock.now += 301.0
    assert alone.over(3), "none comes any more"
