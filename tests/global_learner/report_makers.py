"""Fleets that a report has to show: none, one, three after a demo, sixty-four, and one with hostile names."""

from __future__ import annotations

import math
import random
from typing import Any

from global_learner.report.learning import CurvePoint, LessonCurve, LessonScore
from global_learner.report.load import LoadScope, SchedulerLoad
from global_learner.report.savings import ReplayComparison
from policy_net.exchange.generated import fleet_pb2 as pb

NOW = 1_795_248_000.0
EVIL = '<script>document.title="hacked"</script>'
LONG = "a-very-long-cluster-name.in-some-department.of-some-company.example"


def timeline(number: int, draw: random.Random, job_type: str = "resnet-50") -> pb.JobTimeline:
    moments = sorted(draw.sample(range(1, 60), draw.randrange(2, 15)))
    held = [pb.JobTimeline.Held(seconds=0, workers=0, ps=0)]
    held += [
        pb.JobTimeline.Held(seconds=600.0 * at, workers=draw.randrange(1, 9), ps=draw.randrange(1, 7)) for at in moments
    ]
    marks = [pb.JobTimeline.Intervention(seconds=900.0, reason="over-capacity")] if number % 3 == 0 else []
    return pb.JobTimeline(
        number=number,
        job_type=job_type,
        held=held,
        interventions=marks,
        resizes=len(held) - 2,
        seconds=600.0 * moments[-1] + 300.0,
        completed=number % 2 == 0,
    )


def reported_load(draw: random.Random, policy: str = "", begin: float = 0.0, steps: int = 100) -> pb.LoadCurve:
    """A day or so of 64 GPUs, with a gap; `ended` but for a real cluster, whose time begins in Unix seconds."""
    used = [0.6 * draw.randrange(100) for _ in range(steps)]
    waiting = [float(draw.randrange(30 if policy else 9)) for _ in range(steps)]
    gpus = [64.0] * steps
    if steps > 40:
        used[30], waiting[30], gpus[30] = -1.0, -1.0, -1.0
    return pb.LoadCurve(
        policy=policy, begin_seconds=begin, step_seconds=900.0, gpus_used=used, jobs_waiting=waiting, gpus=gpus,
        ended=not begin,
    )  # fmt: skip


def replayed_past(ran: pb.LoadCurve, twin: float = 1.04) -> pb.ReplayedPast:
    """A past as an agent replays it: its own load a little smoother, and others' where the twin is near."""
    day = {"begin_seconds": ran.begin_seconds, "end_seconds": ran.begin_seconds + 900.0 * len(ran.gpus)}
    steps = min(len(ran.gpus), 84)
    step = (day["end_seconds"] - day["begin_seconds"]) / steps

    def curve(policy: str, used: float, waiting: float) -> pb.LoadCurve:
        wave = [1.0 + 0.3 * math.sin(at / 5.0) for at in range(steps)]
        return pb.LoadCurve(
            policy=policy, begin_seconds=day["begin_seconds"], step_seconds=step, gpus=[64.0] * steps,
            gpus_used=[used * each for each in wave], jobs_waiting=[waiting * each for each in wave],
        )  # fmt: skip

    others = {"fifo-easy": 9.1 * 3600, "drf": 6.6 * 3600} if abs(twin - 1.0) < 0.25 else {}
    curves = [curve("", 29.0, 4.0), curve("fifo-easy", 40.0, 14.0), curve("drf", 35.0, 7.0)]
    return pb.ReplayedPast(
        jobs=212, avg_jct_seconds=5 * 3600.0, twin_jct_seconds=5 * 3600.0 * twin, **day, load=curves if others else [],
        baselines=[pb.BaselineTime(policy=name, avg_jct_seconds=seconds) for name, seconds in others.items()],
    )  # fmt: skip


def view(name: str, draw: random.Random, jobs: int = 6, job_type: str = "resnet-50", **changes: Any) -> pb.ClusterView:
    """A cluster in the middle of its work; `changes` are fields of the view or of its status."""
    jct_seconds = draw.uniform(2, 9) * 3600
    status = {
        "decisions": draw.randrange(500, 3000),
        "jobs_running": draw.randrange(20),
        "jobs_waiting": draw.randrange(9),
        "jobs_done": draw.randrange(40, 400),
        "avg_jct_seconds": jct_seconds,
        "baseline_jct_seconds": jct_seconds * draw.uniform(1.0, 1.5),
        "baseline_policy": "drf",
        "load": [reported_load(random.Random(name + policy), policy) for policy in ("", "fifo-easy", "drf")],
        "baselines": [
            pb.BaselineTime(policy=policy, avg_jct_seconds=jct_seconds * factor)
            for policy, factor in (("fifo-easy", 1.9), ("drf", 1.3))
        ],
        "acting_version": 41,
        "job_timelines": [timeline(number, draw, job_type) for number in range(1, jobs + 1)],
    }
    fields = {
        "cluster": name,
        "incarnation": 1,
        "seconds_since_heard": 1.2,
        "updates_accepted": draw.randrange(100, 2000),
        "updates_duplicate": draw.randrange(4),
        "assigned_version": 41,
    }
    for key, value in changes.items():
        (fields if key in pb.ClusterView.DESCRIPTOR.fields_by_name else status)[key] = value
    return pb.ClusterView(status=pb.ClusterStatus(**status), **fields)


def report(views: list[pb.ClusterView], versions: int = 41, scores: bool = False, **changes: Any) -> pb.GetReportReply:
    draw = random.Random(5)
    names = [entry.cluster for entry in views]
    cards = []
    for number in range(1, versions + 1):
        contributions = {} if number == 1 else {name: draw.randrange(3, 15) for name in names}
        card = pb.VersionCard(
            version=number,
            head_step=25 * (number - 1),
            parent=number - 1,
            digest=f"{draw.getrandbits(256):064x}",
            created_unix_seconds=NOW - 60 * (versions - number),
            size_bytes=1_290_000,
            updates=sum(contributions.values()),
            contributions=contributions,
            staleness_p50=2.0,
        )
        if scores and number % 5 == 1:
            ratios = {"calm": 1.04 - 0.004 * number, "rush": 1.1 - 0.007 * number}
            card.score.CopyFrom(
                pb.ReplayScore(
                    state="scored",
                    replay_set_digest="d",
                    over={"drf": math.sqrt(math.prod(ratios.values()))},
                    replays=[
                        pb.ReplayResult(
                            replay=name, avg_jct_seconds=3600.0 * ratio, baseline_jct_seconds={"drf": 3600.0}
                        )
                        for name, ratio in ratios.items()
                    ],
                )
            )
        elif scores:
            card.score.state = "waiting"
        cards.append(card)
    counts = {step: round(60 * 0.6**step) + 1 for step in range(8)} | {31: 1}
    fields = {
        "made_unix_seconds": NOW,
        "fleet": pb.GetFleetReply(
            head_step=25 * max(versions - 1, 0),
            updates_accepted=sum(entry.updates_accepted for entry in views),
            updates_rejected=sum(sum(entry.updates_rejected.values()) for entry in views),
            staleness_p50=2.0 if views else 0.0,
            clusters=views,
            latest_version=versions,
        ),
        "versions": cards,
        "enrolls": True,
        "identities": [pb.ClusterIdentity(cluster=name, state="enrolled") for name in names],
        "staleness": [pb.StalenessCounts(cluster=name, updates=counts) for name in names],
    }
    return pb.GetReportReply(**{**fields, **changes})


def replays(names: list[str]) -> ReplayComparison:
    draw = random.Random(2)
    jct = {}
    for name in names:
        drf = draw.uniform(3, 8) * 3600
        jct[name] = {"drf": drf, "optimus": 0.9 * drf, "v1": 1.02 * drf, "learned": draw.uniform(0.65, 0.8) * drf}
    steps = (1, 6, 12, 18, 24, 30, 36, 41)
    curve = [
        CurvePoint(
            version, 25 * (version - 1), {name: 1.05 - 0.006 * version + draw.uniform(-0.03, 0.03) for name in names}
        )
        for version in steps
    ]
    labels = {"drf": "DRF", "optimus": "Optimus", "v1": "v1 (warm start)", "learned": "newest version"}
    load = [
        LoadScope(
            scope,
            [600.0 * at for at in range(100)],
            [64.0] * 100,
            [
                SchedulerLoad(
                    label, [draw.randrange(60) for _ in range(100)], [float(draw.randrange(most)) for _ in range(100)]
                )
                for label, most in (("DRF", 30), ("newest version", 9))
            ],
            "simulated time",
            "Simulated.",
        )
        for scope in ("all clusters", *names)
    ]
    lessons = LessonCurve(
        [
            LessonScore(version, 6 * (version - 1), mean, mean - reach, mean + reach, dict.fromkeys(names, mean))
            for version, mean, reach in ((1, 1.0, 0.0), (4, 0.97, 0.02), (8, 0.951, 0.024))
        ],
        windows=18,
        jobs=5400,
        shipped=1.05,
    )
    first = ("the warm start", "v1 imitates DRF.")
    return ReplayComparison(jct, labels, "drf", "learned", curve, *first, load=load, lessons=lessons)


def three() -> list[pb.ClusterView]:
    draw = random.Random(1)
    return [
        view("language", draw, guard_interventions={"over-capacity": 12, "deadline": 2}),
        view(
            "mixed", draw, assigned_version=42, updates_rejected={"too-stale": 3, "not-finite": 9},
            quarantined_until_unix_seconds=NOW + 1800,
        ),
        view("vision", draw, guard_interventions={"over-capacity": 30}),
    ]  # fmt: skip


def fleets() -> dict[str, tuple[pb.GetReportReply, ReplayComparison | None]]:
    """Every kind of fleet by a name of its own."""
    draw = random.Random(3)
    fresh = view("north", draw, jobs=0, jobs_done=0, avg_jct_seconds=0.0, baseline_jct_seconds=0.0, acting_version=1)
    many = [
        view(
            f"cluster-{number:02}", draw, jobs=2, seconds_since_heard=400.0 if number == 17 else 2.0,
            guard_interventions={"over-cap": number} if number % 9 == 0 else {},
        )
        for number in range(64)
    ]  # fmt: skip
    strange = [
        view(LONG, draw, job_type=EVIL),
        view(
            EVIL, draw, seconds_since_heard=9000.0, guard_interventions={EVIL: 3, "nan": 1}, updates_rejected={EVIL: 2}
        ),
        view("x", draw, baseline_jct_seconds=0.0),
    ]
    identities = [
        pb.ClusterIdentity(cluster=LONG, state="enrolled"),
        pb.ClusterIdentity(cluster="soon", state="invited"),
    ]
    alone = {"enrolls": False, "identities": []}
    extreme = [
        view("most", draw, jobs_done=2**32 - 1, avg_jct_seconds=1e10, baseline_jct_seconds=1e-9, decisions=2**64 - 1,
             guard_interventions={"nan": 2**64 - 1}, updates_accepted=2**62, acting_version=2**64 - 1),
        view("least", draw, jobs=0, jobs_done=1, avg_jct_seconds=0.0, baseline_jct_seconds=5e-324, job_timelines=[
            pb.JobTimeline(), pb.JobTimeline(held=[pb.JobTimeline.Held(seconds=1e10)], seconds=0.0, completed=True)
        ]),
    ]  # fmt: skip
    live = {"baseline_jct_seconds": 0.0, "baseline_policy": "", "baselines": [], "simulated": False}
    began = {"north": NOW - 90_000.0, "south": NOW - 30_000.0}
    real = []
    for name, twin in (("north", 1.04), ("south", 1.6)):
        ran = reported_load(draw, begin=began[name], steps=int((NOW - began[name]) / 900.0))
        real.append(view(name, draw, load=[ran], replayed=replayed_past(ran, twin), **live))
    real.append(view("older", draw, load=[], **live))
    return {
        "real": (report(real), None),
        "extreme": (report(extreme), None),
        "empty": (report([], versions=0), None),
        "fresh": (report([fresh], versions=1, staleness=[], **alone), None),
        "one": (report([view("north", draw)], **alone), None),
        "demo": (report(three()), replays(["language", "mixed", "vision"])),
        "live": (report(three(), scores=True), None),
        "many": (report(many, versions=180), None),
        "strange": (report(strange, identities=identities), None),
    }
