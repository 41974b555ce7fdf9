"""Experiments of DL2's evaluation: figures 9 to 12 and 15 to 19, and table 2.

Source: DL2 (Peng et al., TPDS 2021) §6.3 to §6.5. Figures 13 and 14 are times of resizing, which are measured on
processes and not in a simulator; see `benchmarks.resize`. The text gives most figures as percentages; where it gives
none, a claim says what it says in words. Figure 19 names its last two panels alike; here `fig19d` is the loss of the
warm start and `fig19e` the number of clusters. The reward of single jobs, for which the text gives a percentage and no
figure, stands beside table 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foundation.figures import counted
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.reproduction.experiment import (
    Claim,
    Experiment,
    ExperimentLine,
    Measure,
    Picture,
    PolicyTraining,
    Scale,
    Truth,
    World,
)
from policy_net.laboratory.training.settings import Dl2Settings

SCALES = {
    "quick": Scale(
        name="quick", seeds=2, workloads=8, jobs=30, nodes=13, updates=300, imitation_steps=800, demonstrated=5,
        micro_states=15_000, learning_rate=3e-4, group_updates=40,
    ),
    "full": Scale(
        name="full", seeds=5, workloads=16, jobs=60, nodes=24, updates=6000, imitation_steps=4000, demonstrated=20,
        micro_states=150_000, trains_in_judged_world=True,
    ),
}  # fmt: skip
"""Two GPUs and eight cores a node. `quick` is of the size of the paper's testbed, 30 jobs on 13 nodes. Its simulations
had 200 on 500, on which nearly every job can have what it wants; 60 on 24 is a busy cluster."""


def _settings(**changes: Any) -> Dl2Settings:
    """The paper's settings (§4, §6.2 and the preprint's ε and replay), some of them changed: `section__name`.

    The weight of the entropy is ours: advantages are scaled to a size of one here, and entropies to at most one.
    """
    content: dict[str, Any] = {
        "method": "actor-critic",
        "neurons": 256,
        "layers": 2,
        "jobs_per_batch": 20,
        "learning_rate": 1e-4,
        "exploration": 0.4,
        "replay_samples": 8192,
        "imitation": {"learning_rate": 0.005, "batch_samples": 256},
        "actor_critic": {
            "reward": "paper",
            "discount": 0.9,
            "baseline": "critic",
            "replay": "prioritised",
            "batch_samples": 256,
            "shared_credit": 1.0,
            "entropy_weight": 0.01,
        },
    }
    for name, value in changes.items():
        *sections, key = name.split("__")
        section = content
        for part in sections:
            section = section[part]
        section[key] = value
    return Dl2Settings.model_validate(content)


DL2 = PolicyTraining(_settings())


def _by_groups(*, bundles: bool = True, clusters: int = 0, **changes: Any) -> PolicyTraining:
    """A training by groups of decisions from random weights, some of what an update is (`GroupSettings`) changed.

    Six minutes are too few for the second stage of `learning.group_gradient`: credit is mostly a job's own to the end.
    """
    groups = {"micro_actions": 25_000, "own_until": 1.0} | changes
    settings = Dl2Settings.model_validate({"bundles": bundles, "groups": groups})
    return PolicyTraining(settings, teacher=None, clusters=clusters)


GROUPS = _by_groups()
OFFLINE_RL = PolicyTraining(_settings(), truth=Truth.ANALYTICAL)
REWARDS_ONLY = PolicyTraining(_settings(), teacher=None)

_TRAINED_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_FIRST_FOUR, _FIRST_SIX = MODEL_NAMES[:4], MODEL_NAMES[:6]


def _against(
    of: str,
    against: str,
    paper: float | None = None,
    words: str = "",
    direction: int = 0,
    *,
    at: float | None = None,
    text: str = "",
    measure: Measure = Measure.AVG_JCT,
) -> Claim:
    """Claim on one line against another, both at the same place of their curves."""
    return Claim(text or f"{of} against {against}", (of, at), (against, at), paper, words, measure, direction)


def _curve(label: str, training: PolicyTraining) -> tuple[ExperimentLine, ...]:
    return tuple(ExperimentLine(label, training, at=share, trained_share=share) for share in _TRAINED_SHARES)


def _in_worlds(label: str, policy: str | PolicyTraining, worlds: dict[float, World]) -> tuple[ExperimentLine, ...]:
    return tuple(ExperimentLine(label, policy, at=at, judged=world) for at, world in worlds.items())


_NOISE = {at: World(job_noise=at) for at in (0.0, 0.1, 0.2, 0.3, 0.4)}
_ERRORS = {at: World(epoch_error=at) for at in (0.0, 0.1, 0.2, 0.3)}


def _panel(name: str, title: str, axis: str, key: str, values: dict[int, dict[str, Any]], best: int) -> Experiment:
    """A panel of figure 19: one setting varies, and the paper says which value did best."""
    lines = tuple(
        ExperimentLine(key, PolicyTraining(_settings(**changes)), at=float(value)) for value, changes in values.items()
    )
    others = [value for value in values if value != best]
    words = f"{best} is the best"
    claims = tuple(
        Claim(f"{key} {best} against {value}", (key, float(best)), (key, float(value)), words=words, direction=-1)
        for value in others
    )
    points = tuple((key, float(value)) for value in values)
    return Experiment(name, title, lines, claims, _WHY_ARCHITECTURE, Picture.CURVES, axis, (points, (key, float(best))))


_WHY_ARCHITECTURE = "The input differs (one-hot types in 12 columns, scaled numbers), so the best size may do so too."
_WHY_SHORT = "The paper's learning goes on for thousands of slots; a short one stays near its warm start."

FIGURE_9 = Experiment(
    "fig9",
    "Schedulers compared",
    (
        ExperimentLine("DRF", "drf"),
        ExperimentLine("Tetris", "tetris"),
        ExperimentLine("Optimus", "optimus"),
        ExperimentLine("OfflineRL", OFFLINE_RL),
        ExperimentLine("DL2", DL2),
        ExperimentLine("DL2, by groups of decisions", GROUPS),
    ),
    (
        _against("DL2", "DRF", -0.441),
        _against("DL2", "Optimus", -0.175),
        _against("DL2", "OfflineRL", -0.379),
        _against("DL2", "Tetris", words="better than Tetris", direction=-1),
        _against("Tetris", "DRF", words="Tetris is better than DRF", direction=-1),
        *(
            _against("DL2, by groups of decisions", name, words="–", text=f"by groups of decisions, against {name}")
            for name in ("DRF", "Optimus")
        ),
    ),
    "Optimus is written from its paper and fits speeds online; the paper's assumed a model that its testbed did not"
    " follow. " + _WHY_SHORT,
)

_BOTH = "imitation, then rewards"

FIGURE_10 = Experiment(
    "fig10",
    "Progress of training",
    (
        *(ExperimentLine("DRF", "drf", at=share) for share in (0.0, 1.0)),
        *(
            ExperimentLine("imitation only", PolicyTraining(_settings(), imitation=share), at=share, trained_share=0.0)
            for share in (0.0625, 0.25, 1.0)
        ),
        *_curve("rewards only", REWARDS_ONLY)[1:],  # to replay a network that knows nothing takes minutes
        *_curve(_BOTH, DL2),
        *_curve("by groups of decisions", GROUPS)[1:],
    ),
    (
        _against("imitation only", "DRF", 0.0, at=1.0),
        _against("rewards only", "DRF", words="as good after hundreds of slots", at=1.0),
        _against(_BOTH, "imitation only", None, "improves a lot", -1, at=1.0, text="both against imitation only"),
        _against(_BOTH, "DRF", 0.258, at=1.0, text="GPU utilisation against DRF", measure=Measure.GPU_UTILIZATION),
        _against(_BOTH, "DRF", None, "smaller", -1, at=1.0, text="makespan against DRF", measure=Measure.MAKESPAN),
    ),
    "The axis is the share of all steps, of imitation or of learning from rewards. " + _WHY_SHORT,
    Picture.CURVES,
    "share of the training's steps",
)

FIGURE_11 = Experiment(
    "fig11",
    "Workers and parameter servers of a Seq2Seq job",
    (ExperimentLine("DL2", DL2),),
    (Claim("workers for each parameter server", ("DL2", None), None, 2.0, measure=Measure.WORKERS_PER_PS),),
    "Here Seq2Seq is fastest with about four servers for a worker (11 to 3 in the measured speeds), not with half a"
    " server. The figure is the mean over all Seq2Seq jobs; the picture shows the longest one.",
    Picture.STEPS,
    "slot",
    timeline_of="seq2seq",
)

FIGURE_12 = Experiment(
    "fig12",
    "Other patterns of arrival",
    tuple(
        ExperimentLine(f"{name}, {arrivals}", policy, judged=World(arrivals=arrivals))
        for arrivals in ("uniform", "poisson")
        for name, policy in (("Optimus", "optimus"), ("DL2", DL2))
    ),
    tuple(
        _against(f"DL2, {arrivals}", f"Optimus, {arrivals}", -0.20, text=f"DL2 against Optimus, {arrivals}")
        for arrivals in ("uniform", "poisson")
    ),
    "As figure 9.",
)

_SUFFERS = "DL2 is better, and Optimus suffers more from variation"

FIGURE_15 = Experiment(
    "fig15",
    "Jobs of a type that train faster or slower",
    (*_in_worlds("DL2", DL2, _NOISE), *_in_worlds("Optimus", "optimus", _NOISE)),
    tuple(
        _against("DL2", "Optimus", None, _SUFFERS, -1, at=at, text=f"DL2 against Optimus at {at:.0%}") for at in _NOISE
    ),
    "Here Optimus fits its types' mean speeds online and plans on the fit, which single jobs hardly bend.",
    Picture.CURVES,
    "standard deviation of a job's speed",
)

FIGURE_16 = Experiment(
    "fig16",
    "Epochs that users declare wrongly",
    (*_in_worlds("DL2", DL2, _ERRORS), *_in_worlds("DRF", "drf", _ERRORS)),
    (
        *(
            Claim(
                f"DL2 at {at:.0%} against no error", ("DL2", at), ("DL2", 0.0), words="increases slightly", direction=1
            )
            for at in (0.1, 0.2, 0.3)
        ),
        _against("DL2", "DRF", -0.28, at=0.2, text="DL2 against DRF at 20%"),
    ),
    "Errors are drawn up to the given size, not all of that size.",
    Picture.CURVES,
    "largest error of declared epochs",
)

_ALL_TYPES = "all types from the beginning"
_UNSEEN = PolicyTraining(_settings(), unlocked=(_FIRST_FOUR, _FIRST_SIX, MODEL_NAMES))

FIGURE_17 = Experiment(
    "fig17",
    "Types of jobs that come later",
    (*_curve("new types", _UNSEEN), *_curve(_ALL_TYPES, DL2)),
    (
        _against("new types", _ALL_TYPES, 0.0, at=1.0, text="new types against all, at the end"),
        _against("new types", _ALL_TYPES, None, "worse", 1, at=0.0, text="the same at the beginning"),
    ),
    "Two new types each come after a third and two thirds of the updates, with the next workload.",
    Picture.CURVES,
    "share of the updates",
)

_TEACHERS = {"DRF": ("drf", DL2)} | {
    name.upper(): (name, PolicyTraining(_settings(), teacher=name)) for name in ("fifo", "srtf")
}

FIGURE_18 = Experiment(
    "fig18",
    "Other schedulers to begin with",
    tuple(
        line
        for label, (name, training) in _TEACHERS.items()
        for line in (
            ExperimentLine(f"{label} itself", name),
            ExperimentLine(f"{label}, imitated", training, trained_share=0.0),
            ExperimentLine(f"{label}, then rewards", training),
        )
    ),
    (
        _against("SRTF, then rewards", "SRTF itself", -0.413, text="SRTF, then rewards, against SRTF"),
        _against("FIFO, then rewards", "FIFO itself", None, "better", -1, text="FIFO, then rewards, against FIFO"),
        _against("DRF, then rewards", "DRF itself", -0.441, text="DRF, then rewards, against DRF"),
    ),
    "SRTF here is elastic and no weak scheduler. " + _WHY_SHORT,
)

FIGURE_19A = _panel(
    "fig19a", "Jobs that one inference sees", "J", "J",
    {jobs: {"jobs_per_batch": jobs} for jobs in (5, 10, 20, 40)}, 40,
)  # fmt: skip
FIGURE_19B = _panel(
    "fig19b", "Neurons of one hidden layer", "neurons", "neurons",
    {neurons: {"layers": 1, "neurons": neurons} for neurons in (32, 64, 128, 256, 512)}, 128,
)  # fmt: skip
FIGURE_19C = _panel(
    "fig19c", "Hidden layers of 128 neurons", "layers", "layers",
    {layers: {"layers": layers, "neurons": 128} for layers in (1, 2, 3, 4)}, 2,
)  # fmt: skip

_LOSSES = {
    label: PolicyTraining(_settings(imitation__loss=label.replace(" ", "-")))
    for label in ("cross-entropy", "mean square", "absolute difference")
}

FIGURE_19D = Experiment(
    "fig19d",
    "Losses of the warm start",
    tuple(
        line
        for label, training in _LOSSES.items()
        for line in (ExperimentLine(f"{label}, imitated", training, trained_share=0.0), ExperimentLine(label, training))
    ),
    tuple(
        _against("cross-entropy", label, words="the best, by little", direction=-1)
        for label in ("mean square", "absolute difference")
    ),
    "Targets are soft here, so that a sharp loss has less to gain.",
    best=(tuple((label, None) for label in _LOSSES), ("cross-entropy", None)),
)

_FLEETS = (1, 2, 4)

FIGURE_19E = Experiment(
    "fig19e",
    "Clusters that train one policy",
    tuple(
        ExperimentLine("clusters", PolicyTraining(_settings(), clusters=clusters), at=float(clusters))
        for clusters in _FLEETS
    ),
    tuple(
        Claim(
            f"{clusters} clusters against one, after as many updates in all", ("clusters", float(clusters)),
            ("clusters", 1.0), 0.0,
        )
        for clusters in _FLEETS[1:]
    ),
    "All have as many updates, so each of x clusters lives through an x-th of the slots: the same quality is an x-fold"
    " speed. Updates go through the learner's own code, one by one.",
    Picture.CURVES,
    "clusters",
)  # fmt: skip

_WITHOUT = {
    "without bundles": (PolicyTraining(_settings(bundles=False)), 0.351),
    "without critic": (PolicyTraining(_settings(actor_critic__baseline="moving-average")), 0.211),
    "without exploration": (PolicyTraining(_settings(exploration=0.0)), 0.288),
    "without replay": (PolicyTraining(_settings(actor_critic__replay="newest")), 0.396),
    "own job's reward": (PolicyTraining(_settings(actor_critic__reward="own-job")), 0.291),
    "without entropy": (PolicyTraining(_settings(actor_critic__entropy_weight=0.0)), None),
    "entropy weighs 0.1": (PolicyTraining(_settings(actor_critic__entropy_weight=0.1)), None),
    "uniform replay": (PolicyTraining(_settings(actor_critic__replay="uniform")), None),
    "discount 0.5": (PolicyTraining(_settings(actor_critic__discount=0.5)), None),
}

TABLE_2 = Experiment(
    "table2",
    "Training techniques left out, one at a time",
    (ExperimentLine("all", DL2), *(ExperimentLine(label, training) for label, (training, _) in _WITHOUT.items())),
    tuple(_against(label, "all", paper, words="–" if paper is None else "") for label, (_, paper) in _WITHOUT.items()),
    "The paper's full training is 44% below DRF, so there is much to lose; what has not learned much loses little."
    " Actions that do not fit are masked here, and a job must run before others are filled up, which does part of what"
    " bundles and exploration do.",
)

_WHY_GROUPS = "A training has six minutes of a core, and would go on improving for an hour."
_SOFT = Dl2Settings.model_validate({**GROUPS.settings.model_dump(), "imitation": {"softness": 0.4}})
"""A warm start of some two nats of entropy: after a sharp one all draws are alike, and nothing is learned."""
_WARM_STARTS = {name.upper(): replace(GROUPS, settings=_SOFT, teacher=name) for name in ("drf", "fifo", "srtf")}

FIGURE_10_GROUPS = Experiment(
    "fig10-groups",
    "Progress by groups of decisions",
    (
        *(ExperimentLine(label, label.lower(), at=share) for label in _WARM_STARTS for share in (0.0, 1.0)),
        *_curve("from nothing", GROUPS)[1:],
        *(line for label, training in _WARM_STARTS.items() for line in _curve(f"from {label}", training)),
    ),
    (
        _against("from nothing", "DRF", words="as good after hundreds of slots", at=1.0),
        _against("from DRF", "DRF", -0.441, at=1.0),
        _against("from SRTF", "SRTF", -0.413, at=1.0),
        _against("from FIFO", "FIFO", words="better", direction=-1, at=1.0),
        *(_against(f"from {label}", "from nothing", words="–", at=1.0) for label in _WARM_STARTS),
    ),
    f"What the paper has from DRF, SRTF and FIFO is its figure 18. {_WHY_GROUPS}",
    Picture.CURVES,
    FIGURE_10.axis,
)

FIGURE_17_GROUPS = Experiment(
    "fig17-groups",
    "Types of jobs that come later, by groups of decisions",
    (*_curve("new types", replace(GROUPS, unlocked=_UNSEEN.unlocked))[1:], *_curve(_ALL_TYPES, GROUPS)[1:]),
    (
        _against("new types", _ALL_TYPES, 0.0, at=1.0, text="new types against all, at the end"),
        _against("new types", _ALL_TYPES, None, "worse", 1, at=0.25, text="the same after a quarter"),
    ),
    f"{FIGURE_17.why} {_WHY_GROUPS}",
    Picture.CURVES,
    FIGURE_17.axis,
)

_GROUPED_FLEETS = {
    counted(clusters, "cluster"): _by_groups(clusters=clusters, windows=clusters, every_decisions=40, micro_actions=1)
    for clusters in (1, 2, 4, 8)
}

FIGURE_19E_GROUPS = Experiment(
    "fig19e-groups",
    "Clusters that train one policy by groups of decisions",
    tuple(
        ExperimentLine(label, training, at=share, trained_share=share)
        for label, training in _GROUPED_FLEETS.items()
        for share in (0.125, 0.25, 0.5, 1.0)
    ),
    tuple(
        Claim(f"{label} against one, {text}", (label, at), ("1 cluster", 1.0), paper, words, direction=-1)
        for label, training in list(_GROUPED_FLEETS.items())[1:]
        for at, paper, words, text in (
            (1.0 / training.clusters, 0.0, "", "as many windows in all"),
            (1.0, None, "better", "as many windows each"),
        )
    ),
    "An update replays one workload of every cluster and learns from all their draws together, without delay.",
    Picture.CURVES,
    "share of the updates",
)

_GROUPED = {
    "without bundles": _by_groups(bundles=False),
    "a job's own credit alone": _by_groups(own_share=1.0),
    "the whole decision's credit alone": _by_groups(own_share=0.0),
    "two draws of a state": _by_groups(draws=2),
    "every draw used once": _by_groups(epochs=1),
    "job-aware exploration": _by_groups(exploration=0.4),
}

TABLE_2_GROUPS = Experiment(
    "table2-groups",
    "Training techniques changed, one at a time, by groups of decisions",
    (ExperimentLine("all", GROUPS), *(ExperimentLine(label, training) for label, training in _GROUPED.items())),
    (
        _against("without bundles", "all", 0.351),
        _against("a job's own credit alone", "all", 0.291),
        _against("all", "job-aware exploration", 0.288, text="without job-aware exploration against with it"),
        *(
            _against(label, "all", words="–")
            for label in ("the whole decision's credit alone", "two draws of a state", "every draw used once")
        ),
    ),
    "There is no critic and no replay to leave out: draws of one state are each other's baseline, and are gone over"
    f" twice. {_WHY_GROUPS}",
)

EXPERIMENTS = (
    FIGURE_9,
    FIGURE_10,
    FIGURE_11,
    FIGURE_12,
    FIGURE_15,
    FIGURE_16,
    FIGURE_17,
    FIGURE_18,
    FIGURE_19A,
    FIGURE_19B,
    FIGURE_19C,
    FIGURE_19D,
    FIGURE_19E,
    TABLE_2,
    FIGURE_10_GROUPS,
    FIGURE_17_GROUPS,
    FIGURE_19E_GROUPS,
    TABLE_2_GROUPS,
)
