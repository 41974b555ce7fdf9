"""Locality: Pollux's and Chronus's measurements, and Gavel's as an outside check, against `simulation.locality`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.speed_fit.quality import Array, FitError, crossed, fit_times, relative, row
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.speeds.placement_effect import FITTED_SPREADS, SpreadConstants, spread_features

POLLUX, CHRONUS, GAVEL = "placement_pollux_t4.csv", "chronus_locality.csv", "gavel_throughput.csv"
POLLUX_GPUS_PER_NODE = 4
POLLUX_FAMILIES = {"bert": "bert", "deepspeech2": "deepspeech2", "imagenet": "resnet50"}
CHRONUS_FAMILIES = {"inception_v3": "inception3", "vgg16": "vgg16"}
GAVEL_FAMILIES = {"ResNet-50": "resnet50"}


@dataclass(frozen=True, slots=True)
class Place:
    """How fast a job ran over several nodes, relative to one node."""

    model: str
    workers: int
    nodes: int
    relative_speed: float


def read_pollux(profiles: Path) -> list[Place]:
    """Every placement over several nodes, the median over batches; one node: as many GPUs there, at most 4."""
    steps: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    columns = ("model", "kind", "placement", "local_bsz", "step_time_s")
    for item in read_rows(profiles / POLLUX, columns):
        if item.text("kind") == "placement":
            batch = item.whole("local_bsz", 1)
            steps[item.text("model"), item.text("placement")][batch] = item.number("step_time_s")
    places = []
    for (model, placement), by_batch in steps.items():
        workers = sum(map(int, placement))
        alone = steps[model, str(min(workers, POLLUX_GPUS_PER_NODE))]
        ratios = [alone[batch] / seconds for batch, seconds in by_batch.items() if batch in alone]
        if len(placement) > 1:
            places.append(Place(model, workers, len(placement), float(np.median(ratios))))
    return places


def read_chronus(profiles: Path) -> list[Place]:
    """Every row over several nodes."""
    columns = ("model", "num_gpus", "num_nodes", "relative_speed")
    rows = [
        Place(item.text("model"), item.whole("num_gpus", 1), item.whole("num_nodes", 1), item.number("relative_speed"))
        for item in read_rows(profiles / CHRONUS, columns)
    ]
    return [place for place in rows if place.nodes > 1]


def read_gavel(profiles: Path) -> list[Place]:
    """Spread over packed speeds of the simulation's table, per GPU type and batch; spread is taken as a node each."""
    speeds: dict[tuple[str, str, int, int], dict[int, float]] = defaultdict(dict)
    columns = ("source", "gpu_type", "consolidated", "model", "batch_size", "num_gpus", "iters_per_s")
    for item in read_rows(profiles / GAVEL, columns):
        if item.text("source") == "gavel-simulation" and item.text("model") in GAVEL_FAMILIES:
            key = (item.text("model"), item.text("gpu_type"), item.whole("batch_size", 1), item.whole("num_gpus", 1))
            speeds[key][item.whole("consolidated", 0)] = item.number("iters_per_s")
    return [
        Place(model, workers, workers, both[0] / both[1])
        for (model, _, _, workers), both in speeds.items()
        if workers > 1 and min(both.get(0, 0.0), both.get(1, 0.0)) > 0
    ]


def fit_spread(points: list[Place]) -> SpreadConstants:
    """Constants of one model: least squared relative error of step times."""
    slowdown = np.array([1 / point.relative_speed for point in points])
    return SpreadConstants(*fit_times(_features(points), slowdown, known=1.0).tolist())


def report(profiles: Path) -> list[FitError]:
    """One row per family and source."""
    rows = []
    for source, places, families, how in (
        ("Pollux, T4", read_pollux(profiles), POLLUX_FAMILIES, "one half of placements from the other"),
        ("Chronus", read_chronus(profiles), CHRONUS_FAMILIES, "each placement from the others"),
    ):
        for model, family in families.items():
            points = [place for place in places if place.model == model]
            folds = 2 if source.startswith("Pollux") else len(points)
            held_out = crossed(points, partial(_fold, folds=folds), _held_out_errors)
            rows.append(row(f"{family} ({source})", _errors(FITTED_SPREADS[family], points), how, held_out))
    outside = read_gavel(profiles)
    for model, family in GAVEL_FAMILIES.items():
        points = [place for place in outside if place.model == model]
        errors = _errors(FITTED_SPREADS[family], points)
        rows.append(row(f"{family} (Gavel)", errors, "all: not fitted to", errors))
    return rows


def _fold(index: int, _: Place, folds: int) -> int:
    return index % folds


def _held_out_errors(rest: list[Place], left: list[Place]) -> Array:
    return _errors(fit_spread(rest), left)


def _errors(constants: SpreadConstants, points: list[Place]) -> Array:
    """Of relative speeds."""
    values = np.array(
        [constants.two_nodes, constants.two_nodes_growth, constants.more_nodes, constants.more_nodes_growth]
    )
    return relative(1 / (1 + _features(points) @ values), np.array([point.relative_speed for point in points]))


def _features(points: list[Place]) -> Array:
    return np.array([spread_features(point.workers, point.nodes) for point in points], dtype=float)
