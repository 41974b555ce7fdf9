"""Result of `policy-net tune`: the best trials against the default settings, and the best settings as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from foundation.files import write_whole
from foundation.output import Form, console_of
from foundation.output import show as show_facts
from foundation.tables import Column, FittedTable
from policy_net.laboratory.tuning.comparing import CONFIDENCE, change_between, ranked, row, state_of
from policy_net.laboratory.tuning.space import Value
from policy_net.laboratory.tuning.study_file import Trial
from policy_net.laboratory.tuning.tuner import StudyOutcome, StudyPlan
from policy_net.settings import settings_of_file

BEST_FILE = "best.yaml"
BEST_SHOWN = 5


def write_best(folder: Path, plan: StudyPlan, outcome: StudyOutcome) -> Path | None:
    """Write the best settings for `policy-net train --config`; their file, or None without any.

    Raises:
        OSError: the disk refuses.
    """
    if outcome.best is None:
        return None
    content = settings_of_file(plan.space.settings(outcome.best.values))
    chosen = {name: content[name] for name in ("policy", plan.space.policy)}
    heading = f"# Trial {outcome.best.number} of {len(outcome.trials)} of `policy-net tune`: {_in_words(outcome)}.\n"
    path = folder / BEST_FILE
    write_whole(path, heading + yaml.safe_dump(chosen, sort_keys=False))
    return path


def show(plan: StudyPlan, outcome: StudyOutcome, written: Path | None, form: Form) -> None:
    """Print the result; a csv has a line a trial."""
    if form.for_people:
        _show_table(plan, outcome, written, console_of(form))
    else:
        facts = facts_of(plan, outcome, written)
        show_facts(form, facts, "", facts["rows"])


def facts_of(plan: StudyPlan, outcome: StudyOutcome, written: Path | None) -> dict[str, Any]:
    """The result for programs."""
    default = outcome.trials[0] if outcome.trials else None
    states = [state_of(trial) for trial in outcome.trials]
    return {
        "policy": plan.space.policy,
        "seed": plan.seed,
        "trials": len(outcome.trials),
        "done": states.count("done"),
        "given_up": states.count("given up"),
        "failed": states.count("failed"),
        "under_way": states.count("under way"),
        "confidence": CONFIDENCE,
        "best": None if outcome.best is None else outcome.best.number,
        "confirmed": None if outcome.confirmed is None else outcome.confirmed.to_json(),
        "settings_file": None if written is None else str(written),
        "rows": [row(trial, default) for trial in outcome.trials if default is not None],
    }


def _show_table(plan: StudyPlan, outcome: StudyOutcome, written: Path | None, console: Console) -> None:
    states = [state_of(trial) for trial in outcome.trials]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    console.print(f"{len(states)} trials of {plan.space.policy}: {counted}", highlight=False)
    best = best_table(plan, outcome)
    if best.rows:
        console.print(best)
    for trial in outcome.trials:
        if trial.report is not None and trial.report.failure is not None:
            failed = f"trial {trial.number} failed: {trial.report.failure}"
            console.print(failed, highlight=False, markup=False, soft_wrap=True)
    result = _in_words(outcome)
    console.print(f"{result[0].upper()}{result[1:]}.", highlight=False, soft_wrap=True)
    if written is not None:
        console.print(f"{written}: for policy-net train --config", highlight=False, markup=False, soft_wrap=True)


def best_table(plan: StudyPlan, outcome: StudyOutcome) -> FittedTable:
    """The best trials and the default one, with the settings in which they differ from it."""
    defaults = plan.space.defaults
    by_rank = ranked(outcome.trials)
    shown = by_rank[:BEST_SHOWN]
    shown += [trial for trial in by_rank[BEST_SHOWN:] if trial.number == 0]
    columns = [Column("trial", 0), Column("JCT against the\ndefault settings", 1)]
    varied = [name for name in defaults if any(trial.values[name] != defaults[name] for trial in shown)]
    columns += [Column(name.replace("_", "\n"), 2 + position) for position, name in enumerate(varied)]
    lines = [
        (_name(trial), _against(trial, outcome), *(_value(trial.values[name]) for name in varied)) for trial in shown
    ]
    return FittedTable("The best, on the workloads that chose them", columns, lines)


def _name(trial: Trial) -> str:
    return f"{trial.number} (default)" if trial.number == 0 else str(trial.number)


def _against(trial: Trial, outcome: StudyOutcome) -> str:
    default = outcome.trials[0].report
    if trial.number == 0 or trial.report is None or default is None or not default.by_world or default.failure:
        return "–"
    return str(change_between(trial.report.by_world, default.by_world))


def _in_words(outcome: StudyOutcome) -> str:
    """Gain of the best trial in words; never the figure by which it was chosen."""
    if outcome.best is None:
        return "no trial went to its end"
    if outcome.best.number == 0:
        return "no settings were better than the default ones"
    if outcome.confirmed is None:
        return "whether it is better than the default settings on workloads that only judge was not looked at"
    verdict = "better than" if outcome.confirmed.shown else "not shown to be better than"
    return (
        f"trained anew on other seeds, it changes JCTs by {outcome.confirmed} on workloads that only judge:"
        f" {verdict} the default settings"
    )


def _value(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
