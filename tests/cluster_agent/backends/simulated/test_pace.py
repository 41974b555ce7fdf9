from agent_fakes import Clock

from cluster_agent.backend_settings import FreePace, LockstepPace, ScaledPace
from cluster_agent.backends.simulated.backend import MOST_UNANSWERED, LockstepPacer, behind_twin, pace_of


class Backlog:
    """A trainer that works one decision off every `every` seconds."""

    def __init__(self, clock: Clock, waiting: int, every: float | None) -> None:
        self.clock = clock
        self.started = clock.now
        self.given = waiting
        self.every = every

    @property
    def worked_off(self) -> int:
        if self.every is None:
            return 0
        return min(self.given, int((self.clock.now - self.started) / self.every))

    @property
    def waiting(self) -> int:
        return self.given - self.worked_off


def test_lockstep_waits_until_the_trainer_is_within_its_bound() -> None:
    clock = Clock()
    backlog = Backlog(clock, waiting=10, every=1.0)
    pacer = LockstepPacer(LockstepPace(backlog_decisions=2, patience_seconds=5.0), backlog, clock.wait, clock)
    assert not pacer.pace(1200.0)
    assert backlog.waiting == 2


def test_lockstep_gives_up_on_a_trainer_that_gets_nothing_done_once_per_outage() -> None:
    clock = Clock()
    backlog = Backlog(clock, waiting=10, every=None)
    pacer = LockstepPacer(LockstepPace(backlog_decisions=2, patience_seconds=5.0), backlog, clock.wait, clock)
    pacer.pace(1200.0)
    assert 5.0 < clock.now - 100.0 < 5.1
    given_up = clock.now
    pacer.pace(1200.0)
    assert clock.now - given_up < 0.1


def test_lockstep_waits_again_after_the_trainer_came_back() -> None:
    clock = Clock()
    backlog = Backlog(clock, waiting=10, every=None)
    pacer = LockstepPacer(LockstepPace(backlog_decisions=2, patience_seconds=5.0), backlog, clock.wait, clock)
    pacer.pace(1200.0)
    backlog.every, backlog.started = 1.0, clock.now - 1.0
    pacer.pace(1200.0)
    assert backlog.waiting == 2


def test_lockstep_stops_waiting_when_the_agent_is_to_stop() -> None:
    clock = Clock()
    pacer = LockstepPacer(LockstepPace(), Backlog(clock, waiting=10, every=None), lambda seconds: True, clock)
    assert pacer.pace(1200.0)


def test_a_scaled_clock_keeps_its_ratio_and_a_free_one_waits_for_nobody() -> None:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    pace_of(ScaledPace(kind="scaled", speedup=600.0), None, wait, Clock())(1200.0)
    pace_of(FreePace(), None, wait, Clock())(1200.0)
    pace_of(LockstepPace(), None, wait, Clock())(1200.0)
    assert waits == [2.0, 0.0, 0.0]


class Twin:
    """Answers a question at every look of the clock that waits."""

    def __init__(self, unanswered: int, stops: bool = False) -> None:
        self.unanswered, self.stops, self.looks = unanswered, stops, 0

    def wait(self, seconds: float) -> bool:
        if seconds > 0.0:
            self.looks += 1
            self.unanswered -= 1
        return self.stops


def test_a_clock_that_waits_for_the_twin_goes_on_once_it_has_caught_up() -> None:
    twin = Twin(5)
    hold = behind_twin(lambda _: twin.wait(0.0), lambda: twin.unanswered, twin.wait)
    assert not hold(1200.0)
    assert (twin.unanswered, twin.looks) == (MOST_UNANSWERED, 5 - MOST_UNANSWERED)


def test_a_clock_that_waits_for_the_twin_stops_with_the_agent() -> None:
    twin = Twin(5, stops=True)
    assert behind_twin(lambda _: twin.wait(0.0), lambda: twin.unanswered, twin.wait)(1200.0)
    assert twin.looks == 1
