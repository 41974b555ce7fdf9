"""`python -m benchmarks.set_prices --data FOLDER`: `set` in other prices, and with sessions, on validation windows.

Recorded workloads, every cluster that has a window to choose on, in a mix of job kinds and all-reduce alone, with known
and unknown work. Figures are average JCT over the shipped policy's on the same arrivals; no window that judges is seen.
Some minutes. `--write NAME --out FILE` makes the policy file of one row, for `benchmarks.policy_quality` to judge;
`--file NAME=FILE` chooses among policy files, such as those that `benchmarks.twin_learning --write` makes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.plan import WINDOW_JOBS
from benchmarks.policy_quality.seeds import SEEDS, Part, windows_of
from benchmarks.policy_quality.statistics import unit_log_ratios
from benchmarks.policy_quality.worlds import Cluster, build_world, clusters_in
from foundation.errors import BAD_INPUT, DONE
from foundation.tables import Column, FittedTable, table_console
from policy_net.domain import CapacityMode
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.exchange.spec import PRICE_COUNT, PRICES_VERSION, SESSION_COUNT, SESSIONS_VERSION
from policy_net.laboratory.simulation.replay import replay
from policy_net.set_policy.policy import default_set_file, set_policy_of, set_spec_of

PROGRAM = "python -m benchmarks.set_prices"
LOAD = 0.9
SETTINGS = {
    "mix, unknown": ("mix", Durations.UNKNOWN),
    "mix, known": ("mix", Durations.KNOWN),
    "all-reduce, unknown": ("allreduce", Durations.UNKNOWN),
    "all-reduce, known": ("allreduce", Durations.KNOWN),
}
FIGURES = ("avg_jct_seconds", "p99_jct_seconds", "max_jct_seconds")
SHIPPED = "shipped"
VARIANTS = {
    "speed exponent": (-0.61, -0.64, 0.0, 0.0, 0.0, 0.0),
    "work exponent": (0.0, 0.0, 0.47, 0.0, 0.0, 0.0),
    "server's price": (0.0, 0.0, 0.0, 0.0, -0.844, -0.544),
    "both exponents": (-0.61, -0.64, 0.47, 0.0, 0.0, 0.0),
    "all three": (-0.61, -0.64, 0.47, 0.0, -0.844, -0.544),
    "server's price, constant": (0.0, 0.0, 0.0, 0.0, -1.0, 0.0),
    "half of all three": (-0.3, -0.3, 0.25, 0.0, -0.6, -0.2),
    "sessions": (0.0,) * (PRICE_COUNT + SESSION_COUNT),
    "half of all three, and sessions": (-0.3, -0.3, 0.25, 0.0, -0.6, -0.2, 0.0, 0.0, 0.0),
}
"""Each by itself and together: what twin gradients once found for the three, a price that does not vary, half of all,
and the model of sessions."""

Run = tuple[str, str, int]
"""Setting, cluster and seed."""


def file_with(terms: Sequence[float]) -> PolicyFile:
    """The shipped policy with other prices, and with sessions where there are numbers for them too."""
    shipped = default_set_file()
    spec = set_spec_of(shipped, SHIPPED).model_copy(
        update={"prices": PRICES_VERSION} | ({"sessions": SESSIONS_VERSION} if len(terms) > PRICE_COUNT else {})
    )
    weights = np.append(shipped.weights, terms).astype(np.float32)
    card = {**shipped.card, "prices_set_by": PROGRAM}
    return PolicyFile(spec, weights, card, shipped.priors)


def validation_cells(clusters: Sequence[Cluster], setting: str, seed: int) -> Iterator[RealCell]:
    """The windows to choose on; a cluster with too few windows has none."""
    kind, durations = SETTINGS[setting]
    for cluster in clusters:
        for window, part in windows_of(cluster.jobs, WINDOW_JOBS).items():
            if part is Part.VALIDATION:
                yield window_cell(cluster, window, part, seed, kind, durations)


def window_cell(cluster: Cluster, window: int, part: Part, seed: int, kind: str, durations: Durations) -> RealCell:
    """A window of a recorded cluster on pooled GPUs, under the part's so many-th draw of models and noise."""
    seeds = SEEDS[part]
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


def measure(
    clusters: Sequence[Cluster], data: Path, seeds: int, variants: Mapping[str, PolicyFile]
) -> dict[str, dict[Run, dict[str, float]]]:
    """Figures of the shipped policy and of every variant, by run."""
    files = {SHIPPED: default_set_file(), **variants}
    found: dict[str, dict[Run, dict[str, float]]] = {name: {} for name in files}
    for setting in SETTINGS:
        for seed in range(seeds):
            for cell in validation_cells(clusters, setting, seed):
                world = build_world(cell, data)
                for name, file in files.items():
                    policy = set_policy_of(file, name)
                    figures = replay(world.workload, world.environment, policy, world.speeds).to_json()
                    found[name][setting, cell.cluster, seed] = {figure: figures[figure] for figure in FIGURES}
    return found


def summarise(found: Mapping[str, Mapping[Run, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """One row per setting and variant: changes as fractions, over clusters whose seeds are averaged first."""
    rows = []
    for setting in SETTINGS:
        for name in (name for name in found if name != SHIPPED):
            changes = {figure: _changes(found, setting, name, figure) for figure in FIGURES}
            of_clusters = changes["avg_jct_seconds"]
            if not of_clusters:
                continue
            values = np.array(list(of_clusters.values()))
            error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
            rows.append(
                {
                    "setting": setting,
                    "variant": name,
                    "clusters": len(values),
                    "mean": float(values.mean()),
                    "standard_error": error,
                    "median": float(np.median(values)),
                    "best": float(values.min()),
                    "worst": float(values.max()),
                    "p99": float(np.mean(list(changes["p99_jct_seconds"].values()))),
                    "longest": float(np.mean(list(changes["max_jct_seconds"].values()))),
                }
            )
    return rows


def _changes(
    found: Mapping[str, Mapping[Run, Mapping[str, float]]], setting: str, name: str, figure: str
) -> dict[str, float]:
    """Mean log ratio to the shipped policy, of every cluster."""
    tried, shipped = (
        {run: row[figure] for run, row in found[one].items() if run[0] == setting} for one in (name, SHIPPED)
    )
    return unit_log_ratios(tried, shipped, {run: run[1] for run in shipped})


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--data", type=Path, help="folder with workloads/*.csv")
    parser.add_argument("--seeds", type=int, default=3, help="of models and noise")
    parser.add_argument("--every", type=int, default=1, help="only every so many clusters")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME=P0,…,P5[,S0,S1,S2]", help="in place of the usual ones"
    )
    parser.add_argument("--file", action="append", default=[], metavar="NAME=FILE", help="in place of them, too")
    parser.add_argument("--write", metavar="NAME", help="make the policy file of this variant, and measure nothing")
    parser.add_argument("--out", type=Path, help="where to write it")
    try:
        return _run(parser.parse_args(arguments))
    except BadInput as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return BAD_INPUT


def _run(options: argparse.Namespace) -> int:
    terms = dict(map(_variant, options.variant)) or ({} if options.file else VARIANTS)
    variants = {name: file_with(values) for name, values in terms.items()} | dict(map(_file, options.file))
    if options.write is not None:
        return _write(options.write, options.out, variants)
    if options.data is None or options.seeds < 1 or options.every < 1:
        raise BadInput("give --data FOLDER, with workloads/*.csv; --seeds and --every are 1 or more")
    clusters = clusters_in(options.data)[:: options.every]
    rows = summarise(measure(clusters, options.data, options.seeds, variants))
    if not rows:
        raise BadInput(f"{options.data}: no workloads/*.csv is long enough to have a window to choose on")
    if options.output == "json":
        print(json.dumps({"variants": terms, "files": options.file, "rows": rows}, indent=1))
    else:
        table_console().print(prices_table(rows))
    return DONE


def _variant(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, values = text.partition("=")
    try:
        terms = tuple(float(value) for value in values.split(","))
    except ValueError as error:
        raise BadInput(f"--variant {text!r}: no numbers ({error}); use NAME=P0,…,P5[,S0,S1,S2]") from error
    if len(terms) not in (PRICE_COUNT, PRICE_COUNT + SESSION_COUNT) or not np.isfinite(terms).all():
        raise BadInput(f"--variant {text!r}: give {PRICE_COUNT} finite numbers, or {PRICE_COUNT + SESSION_COUNT}")
    return name, terms


def _file(text: str) -> tuple[str, PolicyFile]:
    name, separator, path = text.partition("=")
    if not separator:
        raise BadInput(f"--file {text!r}: use NAME=FILE")
    content = read_policy_file(Path(path))
    set_spec_of(content, path)
    return name, content


def _write(name: str, out: Path | None, variants: Mapping[str, PolicyFile]) -> int:
    if out is None or name not in variants:
        raise BadInput(f"--write {name!r}: give --out FILE, and one of {', '.join(variants)}")
    write_policy_file(out, variants[name])
    return DONE


def prices_table(rows: Sequence[Mapping[str, Any]]) -> FittedTable:
    """Changes of completion times, a setting and its prices each."""
    columns = (
        Column("setting"),
        Column("prices", text=True),
        Column("clusters", 5),
        Column("average JCT"),
        Column("median", 1),
        Column("best", 3),
        Column("worst", 2),
        Column("p99", 4),
        Column("longest", 6),
    )
    lines = []
    for row in rows:
        error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.1%}"
        shown = [f"{row[name]:+.1%}" for name in ("median", "best", "worst", "p99", "longest")]
        lines.append((row["setting"], row["variant"], str(row["clusters"]), f"{row['mean']:+.1%}{error}", *shown))
    return FittedTable("", columns, lines)


if __name__ == "__main__":
    sys.exit(main())
