"""Process of a comparison: the cluster's last days under what acts there, FIFO with EASY backfill, and the fallback.

It reads the decision log in the agent's state directory and writes one line, of means and sums and no single job. It
takes little of a core (lowest priority, a bound on memory, rests between decisions), and ends with its agent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import policy_net.baselines  # noqa: F401  (registers the schedulers' names)
from cluster_agent.errors import StateDamaged
from cluster_agent.learning.own_past import acting_of, log_of, machines_of
from cluster_agent.recording.load_history import LoadCurve, ReplayedPast
from cluster_agent.recording.log_reading import last_decision
from foundation.question_process import be_modest
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.exchange.wire import MOST_TIMES_OFF, times_off
from policy_net.laboratory.simulation.metrics import load_of
from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.laboratory.training.twin_windows import FEWEST_JOBS, LastDays, last_days_of
from policy_net.policy import SchedulerPolicy, build_policy

USUAL = "fifo-easy"
"""What most clusters run."""
MOST_JOBS = 4_000
"""Of one replay; with more the days are fewer. They take a minute of a core, twenty at its twentieth."""
STEPS = 84
"""Of the days: two hours each, where they are seven."""
MOST_BYTES = 3 * 2**27
"""Of data, as a lesson."""


def compared(past: LastDays, acting: SchedulerPolicy, fallback: str, between_steps: Callable[[], None]) -> ReplayedPast:
    """The last days in replays; under other schedulers only where the replay of what acts is near what happened.

    Raises:
        PolicyNetError: a scheduler cannot have these jobs.
    """

    def rest(_: float) -> None:
        between_steps()

    result = past.replayed(acting, rest, record_timeline=True)
    twin_seconds = past.mean_jct_seconds(result)
    curves = [_curve(past, result, "")]
    baselines: dict[str, float] = {}
    if min(twin_seconds, past.really_seconds) > 0.0 and (
        times_off(twin_seconds, past.really_seconds) <= MOST_TIMES_OFF
    ):
        for name in dict.fromkeys((USUAL, fallback)):
            if name == acting.name:
                continue
            result = past.replayed(build_policy(name, PolicyContext()), rest, record_timeline=True)
            baselines[name] = past.mean_jct_seconds(result)
            curves.append(_curve(past, result, name))
    return ReplayedPast(
        begin_seconds=past.zero_seconds + past.begin_seconds,
        end_seconds=past.zero_seconds + past.end_seconds,
        jobs=len(past.compared),
        avg_jct_seconds=past.really_seconds,
        twin_jct_seconds=twin_seconds,
        baselines=baselines,
        load=tuple(curves) if baselines else (),
    )


def _curve(past: LastDays, result: ReplayResult, policy: str) -> LoadCurve:
    gpus = past.window.environment.gpus
    load = load_of(past.window.workload, gpus, result.timeline)
    used, waiting = load.means(STEPS, past.begin_seconds, past.end_seconds)
    return LoadCurve(
        begin_seconds=past.zero_seconds + past.begin_seconds,
        step_seconds=(past.end_seconds - past.begin_seconds) / STEPS,
        gpus_used=tuple(used),
        jobs_waiting=tuple(waiting),
        gpus=(float(gpus),) * STEPS,
        policy=policy,
    )


def answer(state_dir: Path, fallback: str, between_steps: Callable[[], None]) -> ReplayedPast | str:
    """The comparison, or why there is none."""
    try:
        line = last_decision(state_dir)
        log = None if line is None else log_of(state_dir)
        if line is None or log is None:
            return "nothing was decided here yet"
        past = last_days_of(log, machines_of(line, log), most_jobs=MOST_JOBS)
        if past is None:
            return f"no {FEWEST_JOBS} jobs have ended here in the last days"
        acting = acting_of(state_dir, line)
        if acting is None:
            return f"the policy {line['policy']} that acts is not at hand"
        return compared(past, acting, fallback, between_steps)
    except (PolicyNetError, StateDamaged) as error:
        return str(error)


def main() -> None:
    """Answer: `comparison_process PERCENT AGENT STATE-DIR FALLBACK`, the agent by its process number."""
    between_steps = be_modest(int(sys.argv[2]), float(sys.argv[1]), MOST_BYTES, from_start=True)
    found = answer(Path(sys.argv[3]), sys.argv[4], between_steps)
    between_steps()  # reading the log counts too
    content = {"reason": found} if isinstance(found, str) else found.to_json()
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
