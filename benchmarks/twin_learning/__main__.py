"""`python -m benchmarks.twin_learning --data FOLDER --write FILE`: a policy that clusters have taught by their past.

How `set-taught` is made: recorded clusters replay their first jobs, in each of `--settings`, with generated workloads
among the teachers (`--generated`), and what all have taught is kept; with `--average FILES` the mean of several such
trainings that differ in `--seed`. `--file FILE` judges such files against the shipped policy, or with `--against start`
against the same structure untaught, on windows that nobody was taught with: those to choose on, or with `--judge test`
those that only judge. Figures are changes of average JCT as fractions, over clusters.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.plan import WINDOW_JOBS
from benchmarks.policy_quality.seeds import SEEDS, Part, windows_of
from benchmarks.policy_quality.worlds import Cluster, build_world, clusters_in
from benchmarks.twin_learning.fleet import Past, Training, first_jobs, generated_clusters, mean_of, train
from benchmarks.twin_learning.judged import averaged, compare, summary
from foundation.errors import BAD_INPUT, DONE
from policy_net.domain import CapacityMode
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file, write_policy_file
from policy_net.exchange.shipped import file_of
from policy_net.exchange.spec import SET
from policy_net.set_policy.policy import default_set_file, extended, set_spec_of

PROGRAM = "python -m benchmarks.twin_learning"
SETTINGS = {
    "mix-unknown": ("mix", Durations.UNKNOWN),
    "mix-known": ("mix", Durations.KNOWN),
    "allreduce-unknown": ("allreduce", Durations.UNKNOWN),
    "allreduce-known": ("allreduce", Durations.KNOWN),
}
LOAD = 0.9
JUDGED_SEEDS = 3
"""Of models and noise, averaged for each cluster before anything else."""


def start_file() -> PolicyFile:
    """The shipped policy with prices and sessions, all as they have always been."""
    made = extended(default_set_file(), SET)
    return PolicyFile(made.spec, made.weights, dict(default_set_file().card), made.priors)


def parts_of(cluster: Cluster) -> dict[Part, int]:
    """A window of each part that the cluster has."""
    return {part: window for window, part in windows_of(cluster.jobs, WINDOW_JOBS).items()}


def cell(cluster: Cluster, part: Part, setting: str, seed: int) -> RealCell:
    """A window of a recorded cluster on pooled GPUs, under the part's so many-th draw of models and noise."""
    window = parts_of(cluster)[part]
    seeds = SEEDS[part]
    kind, durations = SETTINGS[setting]
    return RealCell(
        cluster=cluster.name,
        file_digest=cluster.file_digest,
        jobs=min(WINDOW_JOBS, cluster.jobs - window * WINDOW_JOBS),
        window=window,
        window_jobs=WINDOW_JOBS,
        part=part,
        model_seed=seeds.models[seed],
        noise_seed=seeds.disturbances[seed],
        job_kind=kind,
        load=LOAD,
        durations=durations,
        capacity=CapacityMode.POOLED,
    )


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("-o", "--output", choices=("json",), default="json")
    parser.add_argument("--data", type=Path, required=True, help="folder with workloads/*.csv")
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--pairs", type=int, default=4, help="of a gradient")
    parser.add_argument("--window-jobs", type=int, default=500)
    parser.add_argument("--learning-rate", type=float, default=0.3, help="of the first step, in spreads")
    parser.add_argument("--updates", type=int, default=200, help="steps of the head")
    parser.add_argument("--write", type=Path, help="keep what all clusters teach in all settings, and judge nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the training of --write")
    parser.add_argument(
        "--generated", type=int, default=0, help="clusters of each generated size that teach in --write"
    )
    parser.add_argument("--permute", action="store_true", help="give each pair a random sign in --write: a control")
    parser.add_argument("--average", type=Path, nargs="+", help="of files that --write has kept --write makes the mean")
    parser.add_argument("--file", type=Path, nargs="+", help="judge what --write has kept: files that differ in --seed")
    parser.add_argument("--judge", choices=("validation", "test"), default="validation", help="windows of --file")
    parser.add_argument("--against", choices=("set", "start"), default="set", help="what --file is compared with")
    try:
        return _run(parser.parse_args(arguments))
    except BadInput as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return BAD_INPUT


def _check(options: argparse.Namespace) -> None:
    """Whether options go together. Raises BadInput if they do not."""
    if (options.write is None) == (options.file is None):
        raise BadInput("give --write FILE, to make a policy file, or --file FILE, to judge one")
    if min(options.updates, options.pairs, options.window_jobs) < 1 or min(options.generated, options.seed) < 0:
        raise BadInput("--updates, --pairs and --window-jobs are 1 or more, --generated and --seed 0 or more")
    if options.file is not None and any((options.generated, options.seed, options.permute, options.average)):
        raise BadInput("--seed, --generated, --permute and --average are for --write: name the file that is made")
    if options.write is not None and options.against != SET:
        raise BadInput(f"--against {options.against} is for --file: name the policy file that is compared")
    if options.average is not None and any((options.generated, options.seed, options.permute)):
        raise BadInput("--average trains nothing: leave --seed, --generated and --permute out")


def _run(options: argparse.Namespace) -> int:
    _check(options)
    if options.average is not None:
        write_policy_file(options.write, mean_of([read_policy_file(file_of(path)) for path in options.average]))
        return DONE
    clusters = clusters_in(options.data)
    if options.file is not None:
        print(json.dumps(judge(options, clusters), indent=1))
        return DONE
    if not any(Part.TRAIN in parts_of(cluster) for cluster in clusters):
        raise BadInput(f"{options.data}: no workloads/*.csv is long enough to have a window to teach with")
    with tempfile.TemporaryDirectory() as folder:
        _write(options, clusters, Path(folder))
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
        found[setting] = summary(compared)
    return {
        "files": [digest_of(path.read_bytes()) for path in options.file],
        "judge": options.judge,
        "against": options.against,
        "settings": found,
    }


def _write(options: argparse.Namespace, clusters: Sequence[Cluster], folder: Path) -> None:
    start = start_file()
    pasts = [past for setting in options.settings for past in pasts_of(clusters, setting, options.data, folder)]
    training = Training(options.updates, options.pairs, options.window_jobs, options.learning_rate, options.permute)
    weights = train(start, pasts, training, options.seed, generated_clusters(options.generated))
    taught_by = sorted({past.cluster for past in pasts})
    write_policy_file(options.write, PolicyFile(start.spec, weights, card_of(options, taught_by), start.priors))


def card_of(options: argparse.Namespace, clusters: Sequence[str]) -> dict[str, Any]:
    """What a file that `--write` makes says of itself."""
    return {
        "made_by": f"{PROGRAM} --write",
        "started_from": SET,
        "data": "arrivals and lengths of recorded clusters; types, speeds and noise drawn",
        "clusters": list(clusters),
        "settings": list(options.settings),
        **{name: getattr(options, name) for name in ("updates", "pairs", "window_jobs", "learning_rate")},
        "seed": options.seed,
        **({"generated": options.generated} if options.generated else {}),
        **({"control": "pairs permuted"} if options.permute else {}),
    }


if __name__ == "__main__":
    sys.exit(main())
