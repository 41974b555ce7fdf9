import json
from collections import Counter

from benchmarks.fleet.load import Done


def test_what_processes_met_comes_together_with_every_refusal_and_failure_in_it() -> None:
    both = Done()
    for cluster, number in (("a", 1), ("b", 2)):
        met = Done({cluster: (7, [1, number])}, push_ms=[1.5], pull_ms=[2.5], heartbeat_ms=[3.5], late_ms=[0.5])
        met.refused["too-stale"] += number
        met.failures.update(["UNAVAILABLE", "DEADLINE_EXCEEDED"])
        both.add(json.loads(met.to_json()))
    assert both.acknowledged == {"a": (7, [1, 1]), "b": (7, [1, 2])}
    assert both.push_ms == [1.5, 1.5]
    assert (both.pull_ms, both.heartbeat_ms, both.late_ms) == ([2.5, 2.5], [3.5, 3.5], [0.5, 0.5])
    assert both.refused == Counter({"too-stale": 3})
    assert both.failures == Counter({"UNAVAILABLE": 2, "DEADLINE_EXCEEDED": 2})
