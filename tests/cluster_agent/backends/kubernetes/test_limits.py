"""Limits: who may change size when, and the line that says why not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_facts import NOW, OPEN, facts, member, situation, target

from cluster_agent.backend_settings import KubernetesLimits, MaintenanceWindow
from cluster_agent.backends.kubernetes.limits import (
    NamespaceFacts,
    Reason,
    has_opted_in,
    is_within,
    limit_of,
    namespace_facts,
)
from cluster_agent.backends.kubernetes.observation import ObservedTarget
from cluster_agent.kubernetes.targets import FINISHING, WAITS_FOR_KUEUE, StatedReason, job_facts

LIMITS = KubernetesLimits(changes_per_hour=2)


def window(begin: str, end: str, **more: Any) -> MaintenanceWindow:
    return MaintenanceWindow.model_validate({"from": begin, "to": end, **more})


def at(day: int, time: str) -> float:
    """A time of June 2026, of which the first is a Monday, in UTC."""
    hours, minutes = time.split(":")
    return datetime(2026, 6, day, int(hours), int(minutes), tzinfo=UTC).timestamp()


def test_nothing_is_in_the_way_of_a_target_of_a_namespace_that_opted_in() -> None:
    assert limit_of(member(), situation(), LIMITS) is None
    assert has_opted_in(member(), situation())


@pytest.mark.parametrize(
    ("found", "seen", "reason", "line"),
    [
        (member(updateMode="Off"), situation(), "Advised", "spec.updateMode is Off"),
        (member(), situation(namespaces={}), "NotOptedIn", "namespace team has no label fedl2.io/update-mode=Auto"),
        (
            member(),
            situation(namespaces={"team": NamespaceFacts(has_opted_in=False, is_frozen=False)}),
            "NotOptedIn",
            "namespace team has no label fedl2.io/update-mode=Auto",
        ),
        (
            member(),
            situation(namespaces={}, unread="namespaces cannot be read: 403"),
            "NotOptedIn",
            "which namespaces have opted in is not known: namespaces cannot be read: 403",
        ),
        (
            member(),
            situation(namespaces={"team": replace(OPEN, is_frozen=True)}),
            "Frozen",
            "namespace team has the annotation fedl2.io/frozen",
        ),
        (
            ObservedTarget(target(annotations={"fedl2.io/frozen": "true"}), facts(), None, None),
            situation(),
            "Frozen",
            "the ElasticTarget has the annotation fedl2.io/frozen",
        ),
        (
            ObservedTarget(target(), facts(annotations={"fedl2.io/frozen": "yes"}), None, None),
            situation(),
            "Frozen",
            "Job train has the annotation fedl2.io/frozen",
        ),
        (
            ObservedTarget(target(), facts(delay=StatedReason("WaitsForKueue", "Kueue starts it")), None, None),
            situation(),
            "WaitsForKueue",
            "Kueue starts it",
        ),
        (
            member(),
            situation(policy_failed="nan"),
            "PolicyFailed",
            "the policy failed (nan): what stands in for it changes nothing",
        ),
        (member(), situation(failing={"uid-train": "3 changes failed"}), "ChangeFailed", "3 changes failed"),
        (
            member(),
            situation(changed={"uid-train": [NOW - 3000, NOW - 60]}),
            "LimitedByRate",
            "2 changes within an hour, of at most 2; again at 08:10:00 UTC",
        ),
    ],
)
def test_a_job_keeps_its_size_for_a_reason_that_it_says(
    found: ObservedTarget, seen: Any, reason: str, line: str
) -> None:
    why = limit_of(found, seen, LIMITS)
    assert why is not None
    assert (why.reason, why.line) == (reason, line)


def test_false_freezes_nothing_and_changes_of_long_ago_or_of_others_do_not_count() -> None:
    thawed = ObservedTarget(target(annotations={"fedl2.io/frozen": "False"}), facts(), None, None)
    assert limit_of(thawed, situation(), LIMITS) is None
    old = situation(changed={"uid-train": [NOW - 3601, NOW - 60], "uid-other": [NOW, NOW, NOW]})
    assert limit_of(member(), old, LIMITS) is None


def test_a_job_that_waits_to_begin_is_not_kept_by_the_rate() -> None:
    often = situation(changed={"uid-train": [NOW, NOW, NOW]})
    assert limit_of(member(workers=0), often, LIMITS) is None


def test_a_namespace_opts_in_by_the_very_word() -> None:
    label = "fedl2.io/update-mode"
    for labels, has in [({label: "Auto"}, True), ({label: "auto"}, False), (None, False)]:
        assert namespace_facts({"metadata": {"name": "n", "labels": labels}}).has_opted_in is has


@pytest.mark.parametrize(
    ("found", "day", "time", "within"),
    [
        (window("22:00", "06:00"), 1, "23:00", True),
        (window("22:00", "06:00"), 1, "05:59", True),
        (window("22:00", "06:00"), 1, "06:00", False),
        (window("22:00", "06:00", days=["mon"]), 1, "05:00", False),  # of Sunday's night
        (window("22:00", "06:00", days=["mon"]), 2, "05:00", True),  # Monday's goes on
        (window("22:00", "06:00", days=["mon"]), 2, "23:00", False),
        (window("09:00", "17:00", days=["tue"]), 2, "09:00", True),
        (window("09:00", "17:00", days=["tue"]), 2, "17:00", False),
        (window("00:00", "00:00", days=["wed"]), 3, "12:00", True),
        (window("00:00", "00:00", days=["wed"]), 4, "00:00", False),
        (window("09:00", "10:00", timezone="Asia/Tokyo"), 1, "00:30", True),
    ],
)
def test_a_window_is_by_the_clock_of_its_zone_and_by_the_day_on_which_it_begins(
    found: MaintenanceWindow, day: int, time: str, within: bool
) -> None:
    assert is_within(found, at(day, time)) is within


@given(st.integers(0, 1439), st.integers(0, 1439))
def test_a_window_and_its_opposite_share_no_minute_and_leave_none_out(begin: int, end: int) -> None:
    def clock(minutes: int) -> str:
        return f"{minutes // 60:02}:{minutes % 60:02}"

    if begin == end:
        return
    one, other = window(clock(begin), clock(end)), window(clock(end), clock(begin))
    noon = datetime(2026, 6, 1, tzinfo=UTC)
    for minutes in {0, 1439, begin, end, (begin - 1) % 1440, (end - 1) % 1440}:
        moment = (noon + timedelta(minutes=minutes)).timestamp()
        assert is_within(one, moment) != is_within(other, moment)


def test_in_a_window_nothing_changes() -> None:
    limits = KubernetesLimits(maintenance=(window("00:00", "00:00", days=["sun", "mon"]), window("00:00", "23:59")))
    why = limit_of(member(), situation(), limits)
    assert why is not None
    assert why.reason == "MaintenanceWindow"
    assert why.line.startswith("no changes from 00:00 to ")


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ({"maintenance": [{"from": "25:00", "to": "06:00"}]}, "'25:00' is no time of day: write HH:MM"),
        ({"maintenance": [{"from": "22:00"}]}, "to"),
        ({"maintenance": [{"from": "22:00", "to": "06:00", "days": ["monday"]}]}, "mon"),
        ({"maintenance": [{"from": "22:00", "to": "06:00", "days": []}]}, "at least 1"),
        ({"maintenance": [{"from": "22:00", "to": "06:00", "timezone": "Berlin"}]}, "'Berlin' is no time zone here"),
        ({"min_shares": {"a": 0.6, "b": 0.6}}, "the shares add up to 1.2: promise no more than 1"),
        ({"min_shares": {"a": 0}}, "greater than 0"),
        ({"changes_per_hour": 0}, "greater than or equal to 1"),
    ],
)
def test_limits_that_make_no_sense_are_refused(bad: Any, line: str) -> None:
    with pytest.raises(ValueError, match="(?s)" + line):
        KubernetesLimits.model_validate(bad)


def test_a_time_that_yaml_took_for_a_number_is_the_time() -> None:
    assert window(22 * 60, "06:00").begin == "22:00"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "annotations", "spec", "status", "line"),
    [
        ({}, {}, {}, {}, ""),
        ({"kueue.x-k8s.io/queue-name": "q"}, {}, {"suspend": True}, {}, "Kueue starts it, when queue q has room"),
        ({"kueue.x-k8s.io/queue-name": "q"}, {}, {}, {"ready": 2}, "would stop it if its size changed"),
        (
            {"kueue.x-k8s.io/queue-name": "q"},
            {"kueue.x-k8s.io/elastic-job": "true"},
            {},
            {"ready": 1},
            "has not admitted all of its pods yet",
        ),
        ({"kueue.x-k8s.io/queue-name": "q"}, {"kueue.x-k8s.io/elastic-job": "true"}, {}, {"ready": 2}, ""),
        ({}, {}, {"suspend": True}, {}, ""),
        ({}, {}, {}, {"succeeded": 1}, "some of its pods are done"),
    ],
)
def test_a_job_of_kueue_is_left_alone_until_it_is_settled(
    labels: Any, annotations: Any, spec: Any, status: Any, line: str
) -> None:
    sizes = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    metadata = {"name": "train", "uid": "1", "labels": labels, "annotations": annotations}
    hold = job_facts({"metadata": metadata, "spec": {**sizes, **spec}, "status": status}).delay
    assert (hold is None) == (not line)
    assert hold is None or line in hold.line


def test_the_guide_says_what_each_reason_means() -> None:
    guide = (Path(__file__).parents[4] / "docs/guide/kubernetes.md").read_text(encoding="utf-8")
    assert [word for word in (*Reason, FINISHING, WAITS_FOR_KUEUE) if f"`{word}`" not in guide] == []
