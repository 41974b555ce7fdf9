"""A loop that hangs is told from one that waits."""

from cluster_agent.telemetry import Health
from foundation.clocks import AwakeClock


def health_at(now: list[float], not_ready: str = "") -> Health:
    return Health(60.0, lambda: now[0], lambda: not_ready)


def test_whoever_has_not_begun_is_alive_for_as_long_as_it_takes() -> None:
    now = [0.0]
    health = health_at(now)
    now[0] = 10_000.0
    assert health.not_alive == ""


def test_a_wait_may_be_long_and_what_follows_it_may_not() -> None:
    now = [0.0]
    health = health_at(now)

    def wait(seconds: float) -> bool:
        now[0] += seconds
        assert health.not_alive == "", "while it waits"
        return seconds > 50.0

    noted = health.reported_by(wait)
    assert [noted(50.0), noted(59.0), noted(500.0)] == [False, True, True], "as it was answered"
    now[0] += 60.0
    assert health.not_alive == ""
    now[0] += 1.0
    assert health.not_alive == "the decision loop has not turned for 61 s"
    health.turned()
    assert health.not_alive == ""


def test_who_is_not_alive_is_not_ready_and_who_is_says_what_is_missing() -> None:
    now = [0.0]
    health = health_at(now, "nodes could not be read yet")
    assert health.not_ready == "nodes could not be read yet"
    health.turned()
    now[0] = 61.0
    assert "has not turned" in health.not_ready
    assert health_at(now).not_ready == ""


def test_a_loop_that_was_stopped_with_its_process_is_alive_and_one_that_hangs_afterwards_is_not() -> None:
    now = [0.0]
    health = Health(100.0, AwakeClock(60.0, lambda: now[0]), lambda: "")
    health.turned()
    now[0] += 3600.0
    assert health.not_alive == ""
    for _ in range(10):
        now[0] += 10.0
        late = health.not_alive
    assert late
