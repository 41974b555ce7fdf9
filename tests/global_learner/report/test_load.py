"""Load over time, as the page reads it."""

from global_learner.report.load import LoadCurve, load_section

BEFORE = LoadCurve("FIFO", 8, [(0.0, 2, 4), (60.0, 6, 0)])
NOW = LoadCurve("newest version", 8, [(0.0, 8, 1), (60.0, 4, 0)])


def test_the_sentences_say_what_was_in_use_and_what_waited_the_proposed_policy_first() -> None:
    section = load_section([BEFORE, NOW], "simulated time", "Simulated.")
    assert section is not None
    assert section["use_finding"] == "GPUs in use on average: 75% (newest version) and 50% (FIFO)."
    assert section["waiting_finding"] == "Jobs waiting on average: 0.5 (newest version) and 2.0 (FIFO)."
    assert section["curves"][1] == {"label": "newest version", "gpus": 8, "points": [[0.0, 8, 1], [60.0, 4, 0]]}


def test_a_fleet_without_gpus_has_no_utilisation_and_a_single_curve_needs_no_name() -> None:
    section = load_section([LoadCurve("fleet", 0, NOW.points)], "time", "")
    assert section is not None
    assert section["use_finding"] == ""
    assert section["waiting_finding"] == "Jobs waiting on average: 0.5."


def test_before_two_moments_there_is_no_curve() -> None:
    assert load_section([], "time", "") is None
    assert load_section([LoadCurve("fleet", 8, [(0.0, 1, 1)])], "time", "") is None
