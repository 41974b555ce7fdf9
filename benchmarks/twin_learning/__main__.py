"""`python -m benchmarks.twin_learning --data FOLDER -o json`: what a fleet learns from twins, on clusters left out.

Recorded clusters in as many parts as `--folds`; each part is judged under what the other parts' clusters have taught
from their first jobs, on windows that nobody was taught with: those to choose on, or with `--judge test` those that
only judge. `learned` is against the same structure at learning rate 0, `over_set` against the shipped policy, `control`
what comes of permuted pairs, `taught` what comes where those that are judged teach too, and `silent_share` how much of
that who teaches nothing has; all are changes of average JCT as fractions, the mean over clusters. A quarter of an hour
a setting on one core; `--settings` picks some, `--write FILE` keeps what all clusters have taught in all of them (by a
real learner and an agent for each cluster with `--agents`, with generated workloads among the teachers with
`--generated`; with `--average FILES` the mean of several that differ in `--seed`), and `--file FILE` judges such a
file against the shipped policy, or `--against start` the same structure untaught. `--stalls SECONDS` says instead what
the default policy loses where each change stops a job for so long.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import RealCell
from benchmarks.policy_quality.plan import WINDOW_JOBS
from benchmarks.policy_quality.seeds import Part, windows_of
from benchmarks.policy_quality.worlds import Cluster, build_world, clusters_in
from benchmarks.set_prices import window_cell
from benchmarks.twin_learning.agents import train_by_agents
from benchmarks.twin_learning.averaging import mean_of
from benchmarks.twin_learning.command_line import SETTINGS, add_judge, add_training, parser_of, run
from benchmarks.twin_learning.fleet import Past, Training, first_jobs, train
from benchmarks.twin_learning.generated import generated_clusters
from benchmarks.twin_learning.judged import averaged, compare
from benchmarks.twin_learning.judged import summary as judged_summary
from benchmarks.twin_learning.stalls import stalled
from benchmarks.twin_learning.stalls import summary as stalled_summary
from foundation.errors import DONE
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file, write_policy_file
from policy_net.exchange.spec import SET, SET_TAUGHT, SetSpec, Weights
from policy_net.laboratory.simulation.replay import replay
from policy_net.set_policy.extended import extended
from policy_net.set_policy.policy import SetPolicy, default_set_file, file_of, set_spec_of, shipped_file

PROGRAM = "python -m benchmarks.twin_learning"
JUDGED_SEEDS = 3
"""Of models and noise, averaged for each cluster before anything else."""
_NORMAL_95 = 1.96


def start_file() -> PolicyFile:
    """The shipped policy with prices and sessions, all as they have always been."""
    made = extended(default_set_file(), SET)
    return PolicyFile(made.spec, made.weights, dict(default_set_file().card), made.priors)


def parts_of(cluster: Cluster) -> dict[Part, int]:
    """A window of each part that the cluster has."""
    return {part: window for window, part in windows_of(cluster.jobs, WINDOW_JOBS).items()}


def cell(cluster: Cluster, part: Part, setting: str, seed: int) -> RealCell:
    """A window under one draw of models and noise."""
    return window_cell(cluster, parts_of(cluster)[part], part, seed, *SETTINGS[setting])


def pasts_of(clusters: Sequence[Cluster], setting: str, data: Path, folder: Path) -> list[Past]:
    """What clusters teach with: their first jobs, on as many machines as these keep busy."""
    return [
        Past(
            cluster.name,
            first_jobs(data, cluster.name, WINDOW_JOBS, folder),
            build_world(cell(cluster, Part.TRAIN, setting, 0), data).environment.nodes,
            *SETTINGS[setting],
        )
        for cluster in clusters
        if Part.TRAIN in parts_of(cluster)
    ]


def log_jcts(clusters: Sequence[Cluster], part: Part, setting: str, data: Path, file: PolicyFile) -> dict[str, float]:
    """The log of the average JCT of each cluster's window of a part, the mean over draws."""
    found = {}
    for cluster in clusters:
        if part not in parts_of(cluster):
            continue
        logs = []
        for seed in range(JUDGED_SEEDS):
            world = build_world(cell(cluster, part, setting, seed), data)
            policy = SetPolicy(_spec(file), file.weights, file.priors)
            result = replay(world.workload, world.environment, policy, world.speeds).to_json()
            logs.append(math.log(result["avg_jct_seconds"]))
        found[cluster.name] = math.fsum(logs) / len(logs)
    return found


Changes = dict[str, list[float]]
"""Of average JCT as fractions, by cluster, one for each seed."""


def _spec(file: PolicyFile) -> SetSpec:
    return set_spec_of(file, "a trained policy")


def training_of(options: argparse.Namespace, permute: bool = False) -> Training:
    """What the command line says of it."""
    return Training(
        options.updates, options.pairs, options.window_jobs, options.learning_rate, permute, options.speeds_wrong
    )


def folds_of(clusters: Sequence[Cluster], count: int) -> Iterator[tuple[list[Cluster], list[Cluster]]]:
    """Clusters that teach and those that are judged, each judged once."""
    for fold in range(count):
        judged = [cluster for number, cluster in enumerate(clusters) if number % count == fold]
        yield [cluster for cluster in clusters if cluster not in judged], judged


def measure(setting: str, clusters: Sequence[Cluster], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One setting: what was learned, by cluster."""
    part = Part(options.judge)
    start = start_file()
    learned: Changes = {}
    control: Changes = {}
    taught: Changes = {}
    over_set: Changes = {}
    for seed in range(options.seeds):
        for teaching, judged in folds_of(clusters, options.folds):
            pasts = pasts_of(teaching, setting, options.data, folder)
            before = log_jcts(judged, part, setting, options.data, start)
            shipped = log_jcts(judged, part, setting, options.data, default_set_file())
            for permute, changes in ((False, learned), (True, control))[: 1 if options.no_control else 2]:
                weights = train(start, pasts, training_of(options, permute), seed)
                after = log_jcts(judged, part, setting, options.data, _file(start, weights))
                for cluster, value in after.items():
                    changes.setdefault(cluster, []).append(math.expm1(value - before[cluster]))
                    if not permute:
                        over_set.setdefault(cluster, []).append(math.expm1(value - shipped[cluster]))
            print(f"{setting}, seed {seed}: {len(learned)} clusters judged", file=sys.stderr)
        pasts = pasts_of(clusters, setting, options.data, folder)
        before = log_jcts(clusters, part, setting, options.data, start)
        together = _file(start, train(start, pasts, training_of(options), seed))
        for cluster, value in log_jcts(clusters, part, setting, options.data, together).items():
            taught.setdefault(cluster, []).append(math.expm1(value - before[cluster]))
    return summary(learned, control, over_set, taught)


def summary(
    learned: Mapping[str, Sequence[float]],
    control: Mapping[str, Sequence[float]],
    over_set: Mapping[str, Sequence[float]],
    taught: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Means over clusters of the means over seeds.

    Args:
        learned: changes of clusters that taught nothing, by seed; `taught` of the same when all teach.
    """
    of_clusters = {name: math.fsum(values) / len(values) for name, values in learned.items()}
    values = np.array(sorted(of_clusters.values()))
    error = _error(values)
    controls, total, together = (
        np.array([math.fsum(each) / len(each) for each in changes.values()]) for changes in (control, over_set, taught)
    )
    return {
        "clusters": of_clusters,
        "learned_mean": float(values.mean()),
        "learned_ci95": [float(values.mean() - _NORMAL_95 * error), float(values.mean() + _NORMAL_95 * error)],
        "learned_median": float(np.median(values)),
        "learned_without_best": float(values[1:].mean()) if len(values) > 1 else None,
        "taught_mean": float(together.mean()),
        "taught_error": _error(together),
        "silent_share": float(values.mean() / together.mean()) if together.mean() < 0.0 else None,
        "control_mean": float(controls.mean()) if len(controls) else None,
        "control_error": _error(controls) if len(controls) > 1 else None,
        "over_set_mean": float(total.mean()),
        "over_set_error": _error(total),
        "worst_cluster": float(total.max()),
    }


def _error(values: Any) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _file(start: PolicyFile, weights: Weights) -> PolicyFile:
    return PolicyFile(start.spec, weights, start.card, start.priors)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = parser_of(PROGRAM, __doc__)
    add_judge(parser)
    add_training(parser)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=200, help="steps of the head")
    parser.add_argument("--no-control", action="store_true", help="leave the permuted pairs out")
    parser.add_argument("--write", type=Path, help="keep what all clusters teach in all settings, and judge nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the training of --write")
    parser.add_argument(
        "--generated", type=int, default=0, help="clusters of each generated size that teach in --write"
    )
    parser.add_argument(
        "--agents", action="store_true", help="--write by a real learner, and an agent for each cluster"
    )
    parser.add_argument("--speeds-wrong", type=float, default=0.0, help="how far off speeds are in --write's replays")
    parser.add_argument("--permute", action="store_true", help="give each pair a random sign in --write: a control")
    parser.add_argument("--file", type=Path, nargs="+", help="judge what --write has kept: files that differ in --seed")
    parser.add_argument("--average", type=Path, nargs="+", help="of files that --write has kept --write makes the mean")
    parser.add_argument("--against", choices=("set", "start"), default="set", help="what --file is compared with")
    parser.add_argument("--stalls", type=float, help="seconds for which each change stops a job")
    return run(parser, arguments, _run)


def _check(options: argparse.Namespace) -> None:
    """Whether options go together. Raises BadInput if they do not."""
    if min(options.seeds, options.updates, options.pairs, options.window_jobs) < 1 or options.folds < 2:
        raise BadInput("--seeds, --updates, --pairs and --window-jobs are 1 or more, --folds 2 or more")
    if options.permute and options.write is None:
        raise BadInput("--permute is for --write: name the file that the control goes to")
    if min(options.generated, options.seed) < 0 or not 0.0 <= options.speeds_wrong <= 1.0:
        raise BadInput("--generated and --seed are 0 or more, --speeds-wrong is from 0 to 1")
    if any((options.generated, options.agents, options.seed, options.speeds_wrong)) and options.write is None:
        raise BadInput("--seed, --generated, --speeds-wrong and --agents are for --write: name the file that is made")
    if options.agents and (options.generated or options.seed or options.speeds_wrong):
        raise BadInput("--agents: agents learn of recorded pasts and push as they come; leave the others out")
    if options.against != SET and options.file is None:
        raise BadInput(f"--against {options.against} is for --file: name the policy file that is compared")
    if options.stalls is not None and not (0.0 < options.stalls < math.inf and options.file is None):
        raise BadInput("--stalls is a finite number of seconds above 0, of the default policy: leave --file out")
    if options.average is not None and (options.write is None or options.agents or options.permute):
        raise BadInput("--average is for --write alone: name the file that is made")


def _run(options: argparse.Namespace) -> int:
    _check(options)
    if options.average is not None:
        write_policy_file(options.write, mean_of([read_policy_file(file_of(path)) for path in options.average]))
        return DONE
    clusters = clusters_in(options.data)
    if options.stalls is not None:
        print(json.dumps(stall(options, clusters), indent=1))
        return DONE
    if options.file is not None:
        print(json.dumps(judge(options, clusters), indent=1))
        return DONE
    if not any(Part.TRAIN in parts_of(cluster) for cluster in clusters):
        raise BadInput(f"{options.data}: no workloads/*.csv is long enough to have a window to teach with")
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        if options.write is not None:
            return _write(options, clusters, Path(folder))
        judged = [cluster for cluster in clusters if Part(options.judge) in parts_of(cluster)]
        found = {setting: measure(setting, judged, options, Path(folder)) for setting in options.settings}
    facts = {name: value for name, value in vars(options).items() if name not in ("data", "write", "output")}
    print(json.dumps({"options": facts, "settings": found, "cpu_seconds": time.process_time() - began}, indent=1))
    return DONE


def judge(options: argparse.Namespace, clusters: Sequence[Cluster]) -> dict[str, Any]:
    """The figures of files that are kept, in each setting; of several the mean for each cluster.

    Raises:
        BadInput: it cannot be used, or no cluster has a window to judge on.
    """
    part = Part(options.judge)
    files = [read_policy_file(file_of(path)) for path in options.file]
    for path, file in zip(options.file, files, strict=True):
        set_spec_of(file, str(path))
    if any(file.card.get("clusters") != files[0].card.get("clusters") for file in files):
        raise BadInput("--file: these were taught by different clusters; judge them one by one")
    other = default_set_file() if options.against == SET else start_file()
    found = {}
    for setting in options.settings:

        def window(cluster: Cluster, draw: int, setting: str = setting) -> RealCell | None:
            return cell(cluster, part, setting, draw) if part in parts_of(cluster) else None

        compared = averaged([compare(file, other, clusters, window, JUDGED_SEEDS, options.data) for file in files])
        if not compared:
            raise BadInput(f"{options.data}: no workloads/*.csv is long enough to have a window to judge on")
        found[setting] = judged_summary(compared)
    return {
        "files": [digest_of(path.read_bytes()) for path in options.file],
        "judge": options.judge,
        "against": options.against,
        "settings": found,
    }


def stall(options: argparse.Namespace, clusters: Sequence[Cluster]) -> dict[str, Any]:
    """What the default policy loses by stalls, in each setting, under one draw of models and noise.

    Raises:
        BadInput: no cluster has a window to judge on.
    """
    part = Part(options.judge)
    found = {}
    for setting in options.settings:

        def window(cluster: Cluster, setting: str = setting) -> RealCell | None:
            return cell(cluster, part, setting, 0) if part in parts_of(cluster) else None

        rows = stalled(shipped_file(SET_TAUGHT), clusters, window, options.stalls, options.data)
        if not rows:
            raise BadInput(f"{options.data}: no workloads/*.csv is long enough to have a window to judge on")
        found[setting] = stalled_summary(rows)
    return {"stalls_seconds": options.stalls, "judge": options.judge, "settings": found}


def _write(options: argparse.Namespace, clusters: Sequence[Cluster], folder: Path) -> int:
    start = start_file()
    pasts = [past for setting in options.settings for past in pasts_of(clusters, setting, options.data, folder)]
    training = training_of(options, options.permute)
    if options.agents:
        made, options.updates = train_by_agents(pasts, training, folder)
        weights = made.weights
    else:
        weights = train(start, pasts, training, options.seed, generated_clusters(options.generated))
    clusters_taught = sorted({past.cluster for past in pasts})
    write_policy_file(options.write, PolicyFile(start.spec, weights, card_of(options, clusters_taught), start.priors))
    return DONE


def card_of(options: argparse.Namespace, clusters: Sequence[str]) -> dict[str, Any]:
    """What a file that `--write` makes says of itself."""
    return {
        "made_by": f"{PROGRAM} --write",
        "started_from": SET,
        "data": "arrivals and lengths of recorded clusters; types, speeds and noise drawn",
        "clusters": list(clusters),
        "settings": list(options.settings),
        **{name: getattr(options, name) for name in ("updates", "pairs", "window_jobs", "learning_rate")},
        **({} if options.agents else {"seed": options.seed}),
        **({"generated": options.generated} if options.generated else {}),
        **({"speeds_wrong": options.speeds_wrong} if options.speeds_wrong else {}),
        **({"by": "a real learner and agents"} if options.agents else {}),
        **({"control": "pairs permuted"} if options.permute else {}),
    }


if __name__ == "__main__":
    sys.exit(main())
