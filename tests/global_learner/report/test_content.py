"""What the report says, before a browser draws it."""

import dataclasses
import json
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_makers import EVIL, NOW, fleets, replays, report, three, view

from foundation.page import as_json
from global_learner.report.content import report_content
from global_learner.report.fleet import ClusterCounts
from global_learner.report.learning import MOST_BINS, CurvePoint, staleness_histogram
from global_learner.report.page import live_page, live_policy, static_page
from global_learner.report.savings import headline, latest_comparison
from global_learner.report.versions import MOST_VERSIONS
from global_learner.report.words import change, listed
from global_learner.service.heartbeats import check_status
from policy_net.exchange.generated import fleet_pb2 as pb

DRAW = random.Random(7)


def jobs(done: int, jct_seconds: float, baseline_seconds: float, name: str = "north") -> pb.ClusterView:
    """A cluster whose agent tells of its fallback alone."""
    seconds = {"avg_jct_seconds": jct_seconds, "baseline_jct_seconds": baseline_seconds}
    return view(name, DRAW, jobs_done=done, baselines=[], **seconds)


def test_the_headline_weighs_jobs_and_says_how_many_clusters_it_is_about() -> None:
    said = headline([jobs(90, 3600.0, 7200.0), jobs(10, 7200.0, 7200.0, "south"), jobs(5, 60.0, 0.0, "west")])
    assert said.text == (
        "In simulation, jobs took 45% less time than under DRF: 90 hours of simulated waiting and training saved"
    )
    assert (
        "No real machine ran these jobs, and no real hour was saved. Over the 100 jobs that 2 of 3 clusters"
        in said.note
    )


def usual(cluster: pb.ClusterView, seconds: float) -> pb.ClusterView:
    """The cluster, with what FIFO with EASY backfill takes for its jobs."""
    cluster.status.baselines.add(policy="fifo-easy", avg_jct_seconds=seconds)
    return cluster


def test_jobs_are_compared_with_what_most_clusters_run() -> None:
    views = [usual(jobs(90, 3600.0, 7200.0), 14400.0), usual(jobs(10, 3600.0, 7200.0, "south"), 14400.0)]
    said = headline(views)
    assert said.text.startswith("In simulation, jobs took 75% less time than under FIFO with EASY backfill: 300 hours")
    assert "against a simulation of FIFO with EASY backfill on exactly these jobs" in said.note
    rows = report_content(report(views))["clusters"]
    assert {(row["compared_with"], row["compared_jct_seconds"]) for row in rows} == {
        ("FIFO with EASY backfill", 14400.0)
    }
    assert {(row["baseline"], row["baseline_jct_seconds"]) for row in rows} == {("DRF", 7200.0)}


def test_where_that_is_not_known_the_fallback_stands_for_it_and_is_named() -> None:
    views = [
        jobs(10, 3600.0, 7200.0, "west"),
        usual(jobs(10, 3600.0, 7200.0), 14400.0),
        jobs(10, 3600.0, 7200.0, "east"),
    ]
    said = headline(views)
    assert said.text.startswith("In simulation, jobs took 62% less time than under FIFO with EASY backfill and DRF: ")
    assert "against a simulation of FIFO with EASY backfill of north and DRF of east and west on exactly" in said.note
    found = {row["cluster"]: row["compared_with"] for row in report_content(report(views))["clusters"]}
    assert found == {"east": "DRF", "north": "FIFO with EASY backfill", "west": "DRF"}


def test_a_baseline_that_is_not_known_for_a_moment_leaves_the_headline_as_it_is() -> None:
    reported: pb.Comparison | None = None

    def heard(cluster: pb.ClusterView) -> str:
        nonlocal reported
        reported = latest_comparison(reported, cluster.status)
        assert reported is not None
        cluster.compared.CopyFrom(reported)
        return headline([cluster]).text

    assert "under DRF: 10 hours" in heard(jobs(10, 3600.0, 7200.0))  # what most clusters run is not worked out yet
    known = heard(usual(jobs(10, 3600.0, 7200.0), 10800.0))
    assert "under FIFO with EASY backfill: 20 hours" in known
    assert heard(jobs(11, 3600.0, 7200.0)) == known
    assert heard(jobs(12, 3600.0, 0.0)) == known
    assert "under FIFO with EASY backfill: 26 hours" in heard(usual(jobs(13, 3600.0, 7200.0), 10800.0))
    assert "under DRF: 1.0 hours" in heard(jobs(1, 3600.0, 7200.0))  # a run that began anew


def test_the_headline_owns_up_to_a_loss_and_to_a_draw() -> None:
    assert headline([jobs(10, 7200.0, 3600.0)]).text == (
        "In simulation, jobs took 100% more time than under DRF: 10 hours of simulated waiting and training lost"
    )
    assert headline([jobs(10, 3600.0, 3601.0)]).text == "In simulation, jobs took as much time as under DRF"


def test_the_headline_says_when_nothing_is_known() -> None:
    assert headline([]).text == "No cluster has joined this fleet yet"
    assert headline([jobs(0, 0.0, 0.0)]).text == "What the fleet saves in simulation is not known yet"
    unknown = headline([view("north", DRAW, baseline_policy="", baseline_jct_seconds=0.0, baselines=[])])
    assert unknown.text == "What the fleet saves is not known"
    assert "policy-net replay" in unknown.note


def told_apart(first: float, *later: float) -> tuple[str, str]:
    """The headline of versions with these scores, and its note."""
    names = ["language", "mixed"]
    points = [
        CurvePoint(number, 10 * number, {names[0]: 2.0 * score, names[1]: score / 2.0})
        for number, score in enumerate((first, *later), start=1)
    ]
    said = headline(three(), dataclasses.replace(replays(names), curve=points))
    return said.text, said.note


def test_what_shipped_and_what_was_learned_since_are_credited_apart() -> None:
    text, note = told_apart(0.6, 0.9, 0.54)
    assert text == "In simulation, the warm start alone takes 40% less time than DRF; learned since: 10% less"
    assert note.startswith("No real machine ran these jobs: 2 clusters, all simulated. ")
    assert "of v3, the newest of this fleet, over those of v1 on the same jobs" in note
    assert note.endswith(" v1 imitates DRF.")


@pytest.mark.parametrize(
    ("scores", "end"),
    [
        ((1.2, 1.5), "takes 20% more time than DRF; learned since: 25% more"),
        ((1.0, 1.001), "takes as much time as DRF; learned since: nothing"),
        ((0.5,), "takes 50% less time than DRF; no version was learned since"),
    ],
)
def test_what_was_learned_is_said_also_where_it_is_a_loss_or_nothing(scores: tuple[float, ...], end: str) -> None:
    assert told_apart(*scores)[0] == f"In simulation, the warm start alone {end}"


def test_the_page_does_not_hide_who_did_better() -> None:
    found = replays(["north"])
    by = found.jct_seconds["north"]
    better = {"north": {**by, "optimus": by["learned"] / 1.1}}
    content = report_content(report(three()), dataclasses.replace(found, jct_seconds=better))
    assert content["completion"]["finding"].startswith("The newest version takes ")
    assert ", 10% more time than Optimus and " in content["completion"]["finding"]


def test_with_replays_a_version_has_one_score_on_the_whole_page() -> None:
    found = report(three(), versions=8, scores=True)
    content = report_content(found, replays(["language", "mixed", "vision"]))
    curve = {point["version"]: point["mean"] for point in content["learning"]["points"]}
    assert content["score_over"] == content["learning"]["reference"] == "DRF"
    assert {row["version"]: row["score"] for row in content["versions"]} == {
        version: curve.get(version) for version in range(1, 9)
    }
    assert {row["score_state"] for row in content["versions"]} == {"not replayed"}, "not the learner's own score"


def test_a_cluster_is_called_simulated_if_it_says_so_or_knows_what_only_a_simulation_can() -> None:
    live = {"baseline_policy": "", "baseline_jct_seconds": 0.0}
    views = [view("told", DRAW, simulated=True, **live), view("old-agent", DRAW), view("real", DRAW, **live)]
    content = report_content(report(views))
    assert [row["simulated"] for row in content["clusters"]] == [True, False, True]
    assert content["completion"]["note"].endswith(" Simulated clusters: old-agent and told.")


def test_clusters_that_need_somebody_are_named_with_the_reason() -> None:
    views = [
        view("a", DRAW, seconds_since_heard=-1.0),
        view("b", DRAW, seconds_since_heard=3600.0 * 5),
        view("c", DRAW, quarantined_until_unix_seconds=NOW + 1800.0),
        view("d", DRAW, finished=True, seconds_since_heard=9999.0),
        view("e", DRAW),
        view("h", DRAW, refused_version=16, refused_reason="expired"),
        view("i", DRAW, refused_version=16, refused_reason="not-allowed"),
        view("j", DRAW, refused_version=16, refused_reason="unusable", seconds_since_heard=3600.0 * 5),
    ]
    identities = [
        pb.ClusterIdentity(cluster="e", state="revoked"),
        pb.ClusterIdentity(cluster="f", state="invited"),
        pb.ClusterIdentity(cluster="g", state="expired"),
    ]
    content = report_content(report(views, identities=identities))
    assert [row["state"]["word"] for row in content["clusters"]] == [
        "not heard", "lost", "quarantined", "finished", "turned out", "invited", "expired",
        "refuses", "refuses", "lost",
    ]  # fmt: skip
    assert content["attention"] == [
        "a: not heard since the learner started",
        "b: not heard for 5 h",
        "c: its updates are not looked at for 30 min more",
        "g: its token or certificate ran out; enroll it again",
        "h: refused v16: expired; look at its clock",
        "j: not heard for 5 h",
    ]
    refusing = {row["cluster"]: (row["refused_version"], row["refused_reason"]) for row in content["clusters"]}
    assert (refusing["h"], refusing["e"]) == ((16, "expired"), (None, None))


def test_clusters_that_never_came_or_were_turned_out_are_counted_apart() -> None:
    said = report([view("here", random.Random(1)), view("gone", random.Random(2))])
    for cluster, state in (("here", "enrolled"), ("gone", "revoked"), ("invited", "invited")):
        said.identities.add(cluster=cluster, state=state)
    counts = ClusterCounts.of(report_content(said)["clusters"])
    assert (counts.present, counts.not_yet, counts.turned_out) == (1, 1, 1)
    assert str(counts) == "1; beside them 1 not registered yet, 1 revoked"
    assert str(ClusterCounts.of(report_content(report([view("here", random.Random(1))]))["clusters"])) == "1"


def test_of_many_versions_the_newest_the_first_and_those_in_use_are_shown() -> None:
    said = report([view("north", DRAW, assigned_version=7, acting_version=6)], versions=300)
    next(card for card in said.versions if card.version == 4).aliases.append("steady")
    content = report_content(said)
    shown = [row["version"] for row in content["versions"]]
    assert shown == [*range(300, 300 - MOST_VERSIONS, -1), 7, 6, 4, 1]
    assert content["versions_left_out"] == 300 - len(shown)
    assert next(row for row in content["versions"] if row["version"] == 7)["assigned"] == ["north"]
    assert {row["version"]: row["aliases"] for row in content["versions"] if row["aliases"]} == {4: ["steady"]}


@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(0, 500), st.integers(0, 50), max_size=9)))
def test_no_update_is_lost_between_the_bars(counts: dict[str, dict[int, int]]) -> None:
    histogram = staleness_histogram(counts, "these")
    total = sum(sum(by.values()) for by in counts.values())
    if not total:
        assert histogram is None
        return
    assert sum(sum(bar["by"].values()) for bar in histogram["bins"]) == histogram["total"] == total
    assert len(histogram["bins"]) <= MOST_BINS + 1
    assert histogram["bins"][-1]["from"] <= histogram["oldest"] <= histogram["bins"][-1]["to"]
    assert all(before["to"] + 1 == after["from"] for before, after in pairwise(histogram["bins"]))


def test_the_few_latest_updates_share_a_bar() -> None:
    histogram = staleness_histogram({"a": {0: 500, 3: 495, 90: 5}}, "these")
    assert [(bar["from"], bar["to"], bar["rest"]) for bar in histogram["bins"]] == [
        (0, 0, False), (1, 1, False), (2, 2, False), (3, 3, False), (4, 90, True),
    ]  # fmt: skip
    assert (histogram["median"], histogram["oldest"]) == (0, 90)


def scored(card: pb.VersionCard, digest: str, **over: float) -> None:
    card.score.CopyFrom(pb.ReplayScore(state="scored", replay_set_digest=digest, over=over))
    for replay in ("calm", "rush"):
        baselines = dict.fromkeys(over, 1000.0)
        card.score.replays.add(
            replay=replay, avg_jct_seconds=1000.0 * max(over.values()), baseline_jct_seconds=baselines
        )


def test_scores_on_the_same_replays_make_the_curve_and_others_are_left_out() -> None:
    found = report([view("north", DRAW)], versions=5)
    scored(found.versions[0], "new", drf=1.1, fifo=0.5)
    scored(found.versions[1], "old", drf=0.2, fifo=0.1)
    scored(found.versions[3], "new", drf=0.88, fifo=0.4)
    found.versions[4].score.state = "waiting"
    content = report_content(found)
    assert content["score_over"] == "DRF"
    assert [row["score"] for row in content["versions"]] == [None, 0.88, None, None, 1.1]
    assert [row["score_state"] for row in content["versions"]] == ["waiting", "scored", "", "scored", "scored"]
    learning = content["learning"]
    assert [(point["version"], round(point["mean"], 6)) for point in learning["points"]] == [(1, 1.1), (4, 0.88)]
    assert learning["finding"] == "v4 needs 20% less time than v1"
    assert (learning["reference"], learning["series"]) == ("DRF", ["calm", "rush"])


def test_a_version_that_no_update_made_has_a_score_and_is_no_point_of_the_learning_curve() -> None:
    found = report([view("north", DRAW)], versions=4)
    for card, score in zip(found.versions, (1.1, 0.9, 0.88, 3.0), strict=True):
        scored(card, "new", drf=score)
    first, put_in = found.versions[0], found.versions[-1]
    first.updates = put_in.updates = 0
    put_in.head_step = found.versions[-2].head_step - 1
    content = report_content(found)
    assert content["versions"][0]["score"] == 3.0
    learning = content["learning"]
    assert [point["version"] for point in learning["points"]] == [1, 2, 3]
    assert learning["finding"] == "v3 needs 20% less time than v1"


def test_a_version_that_waited_when_its_learner_ended_is_not_scored() -> None:
    found = report([view("north", DRAW)], versions=2)
    found.versions[0].score.state = "waiting"
    found.versions[1].score.CopyFrom(pb.ReplayScore(state="failed"))
    running, over = report_content(found), report_content(found, ended=True)
    found.ended = True
    assert [row["score_state"] for row in running["versions"]] == ["failed", "waiting"]
    for content in (over, report_content(found)):
        assert [row["score_state"] for row in content["versions"]] == ["failed", "not scored"]


def test_of_a_learner_that_has_ended_nothing_is_zero_that_is_not_known() -> None:
    found = report([view("north", DRAW)])
    assert report_content(found)["told"]
    found.ended = True
    content = report_content(found)
    assert not content["told"]
    row = content["clusters"][0]
    unknown = ("simulated", "acting_version", "jobs_done", "jobs_running", "jobs_waiting", "decisions", "interventions")
    assert [row[key] for key in unknown] == [None] * len(unknown)
    assert row["updates_accepted"] == found.fleet.clusters[0].updates_accepted


def test_without_a_score_there_is_no_curve() -> None:
    content = report_content(report([view("north", DRAW)]))
    assert content["learning"] is None
    assert content["score_over"] is None


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,9}", fullmatch=True)
SECONDS = st.floats(0.0, 1e10)
COUNTS = st.integers(0, 2**32 - 1)


@st.composite
def views(draw: st.DrawFn) -> pb.ClusterView:
    """Anything that a heartbeat may say once it is checked."""
    held = [pb.JobTimeline.Held(seconds=at, workers=draw(COUNTS)) for at in sorted(draw(st.lists(SECONDS, max_size=3)))]
    marks = [pb.JobTimeline.Intervention(seconds=draw(SECONDS), reason=draw(NAMES))]
    status = pb.ClusterStatus(
        jobs_done=draw(COUNTS),
        avg_jct_seconds=draw(SECONDS),
        baseline_jct_seconds=draw(SECONDS),
        baseline_policy=draw(st.just("") | WORDS),
        acting_version=draw(st.integers(0, 2**63 - 1)),
        guard_interventions=draw(st.dictionaries(WORDS, COUNTS, max_size=3)),
        job_timelines=[pb.JobTimeline(job_type=draw(NAMES), held=held, interventions=marks, seconds=draw(SECONDS))],
    )
    check_status(status)
    heard = draw(st.floats(-1.0, 1e9))
    return pb.ClusterView(
        cluster=draw(NAMES), incarnation=draw(st.integers(0, 2)), seconds_since_heard=heard, status=status
    )


@given(st.lists(views(), max_size=3))
def test_whatever_clusters_say_becomes_a_page(said: list[pb.ClusterView]) -> None:
    page = static_page(report_content(report(said, versions=3)))
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert "nan" not in data["headline"]["text"]
    assert "inf" not in data["headline"]["text"]
    assert all(text.isprintable() for job in data["jobs"] for text in (job["job_type"], job["interventions"][0][1]))


@pytest.mark.heavy
@pytest.mark.parametrize("name", fleets())
def test_every_fleet_has_a_page_of_one_file_with_nothing_from_elsewhere(name: str) -> None:
    content = report_content(*fleets()[name])
    page = static_page(content)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "unsafe" not in page.partition("</head>")[0].partition("<style>")[0]
    inlined = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(inlined) == json.loads(as_json(content))


def test_names_cannot_leave_the_data() -> None:
    page = static_page(report_content(*fleets()["strange"]))
    assert EVIL not in page
    assert "\\u003cscript>" in page


def test_the_live_page_holds_no_data_and_may_ask_its_own_server_only() -> None:
    assert 'id="data">null</script>' in live_page()
    policy = live_policy()
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(0.8, "20% less time"), (1.001, "as much time"), (1.07, "7% more time"), (3.0, "200% more time")],
)
def test_changes_in_words(ratio: float, words: str) -> None:
    assert change(ratio) == words


def test_small_changes_are_told_finely_where_they_are_all_that_there_is() -> None:
    assert change(0.975, fine=True) == "2.5% less time"
    assert change(0.8, fine=True) == "20% less time"
    assert change(0.999, fine=True) == "as much time"


def test_names_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcdef")) == "a, b, c and 3 more"


def test_a_full_disk_stands_first_and_disk_use_is_told() -> None:
    found = report(three())
    found.fleet.disk_full = "the update log waits for room"
    found.fleet.disk_bytes["log"] = 65_000_000
    content = report_content(found)
    assert content["attention"][0] == "the learner: the update log waits for room"
    assert content["learner"]["disk_bytes"] == {"log": 65_000_000}
