"""Load over time, as the page reads it."""

from global_learner.report.load import LoadScope, SchedulerLoad, load_section

BEFORE = SchedulerLoad("FIFO", [2.0, 6.0], [4.0, 0.0])
NOW = SchedulerLoad("newest version", [8.0, 4.0], [1.0, 0.0])


def scope(*curves: SchedulerLoad, gpus: float = 8.0, moments: int = 2) -> LoadScope:
    seconds = [60.0 * index for index in range(moments)]
    return LoadScope("fleet", seconds, [gpus] * moments, curves, "simulated time", "Simulated.")


def test_the_sentences_say_what_was_in_use_and_what_waited_the_proposed_policy_first() -> None:
    section = load_section([scope(BEFORE, NOW)])
    assert section is not None
    (part,) = section["scopes"]
    assert part["use_finding"] == "GPUs in use on average: 75% (newest version) and 50% (FIFO)."
    assert part["waiting_finding"] == "Jobs waiting on average: 0.5 (newest version) and 2.0 (FIFO)."
    newest = {"label": "newest version", "of_own": False, "used": [8.0, 4.0], "waiting": [1.0, 0.0]}
    assert part["curves"][1] == newest
    assert (part["seconds"], part["gpus"], part["real"]) == ([0.0, 60.0], [8.0, 8.0], False)


def test_averages_are_over_the_moments_that_are_known_of_every_scheduler() -> None:
    partly = SchedulerLoad("newest version", [8.0, None, 4.0], [None, 3.0, 1.0])
    other = SchedulerLoad("FIFO", [2.0, 8.0, None], [9.0, 2.0, 2.0])
    section = load_section([scope(other, partly, moments=3)])
    assert section is not None
    (part,) = section["scopes"]
    assert part["use_finding"] == "GPUs in use on average: 100% (newest version) and 25% (FIFO)."
    assert part["waiting_finding"] == "Jobs waiting on average: 2.0 (newest version) and 2.0 (FIFO)."


def test_a_fleet_without_gpus_has_no_utilisation_and_a_single_curve_needs_no_name() -> None:
    section = load_section([scope(NOW, gpus=0.0)])
    assert section is not None
    assert section["scopes"][0]["use_finding"] == ""
    assert section["scopes"][0]["waiting_finding"] == "Jobs waiting on average: 0.5."


def test_a_recording_of_a_larger_cluster_has_its_waiting_jobs_alone() -> None:
    section = load_section([scope(SchedulerLoad("recorded", [None, None], [3.0, 1.0]), NOW)])
    assert section is not None
    assert section["scopes"][0]["use_finding"] == "GPUs in use on average: 75%."
    assert section["scopes"][0]["waiting_finding"].endswith("0.5 (newest version) and 2.0 (recorded).")


def test_where_nothing_is_known_there_is_no_curve() -> None:
    assert load_section([]) is None
    assert load_section([scope(SchedulerLoad("fleet", [], []), moments=0)]) is None
    assert load_section([scope(SchedulerLoad("fleet", [1.0], [1.0]), moments=1)]) is None
