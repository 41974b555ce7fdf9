"""Kills of a job's processes and of the agent, in each state of each change, and how long it takes until all go on.

A job is submitted, made smaller by a rival and larger by its end, held, let go on, and brought to its end or cancelled.
At each of these something is killed with SIGKILL: while the request is under way, at the n-th change that can be seen
on disk from then on (a record written, a launcher's lock taken, a phase noted), or some time later.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from counted_training import job_content, let_go, problem_of, rival_content
from killed_machine import Machine

from cluster_agent.errors import AgentUnreachable, JobRefused

VICTIMS = {
    "ps": ("agent", "launcher", "coordinator", "server", "worker"),
    "ring": ("agent", "launcher", "worker"),
    "script": ("agent", "launcher"),
}
"""A worker of a script of a fixed size is not among them: it fails its job, as it should."""
ACTIONS = {
    "ps": ("submit", "shrink", "grow", "suspend", "resume"),
    "ring": ("submit", "shrink", "grow", "suspend", "resume"),
    "script": ("submit", "suspend", "resume"),
}
ENDS = ("finish", "cancel")
_NOTHING_SECONDS = 10.0
"""A victim that does not come to be within this time is left alone: there is nothing to kill."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill.

    Attributes:
        moment: `during` the request, at the `change N` on disk after it, or so many `ms` later.
    """

    kind: str
    action: str
    victim: str
    moment: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a kill.

    Attributes:
        seen: the job's state when it happened, as users see it; empty where nobody answered.
        seconds: from it until all went on as they should.
    """

    kill: Kill
    seen: str
    seconds: float


def lives_to_live(seed: int) -> Iterator[list[Kill]]:
    """Lives of jobs, each with a kill at every action; each five of a kind hit every action with every victim."""
    draw = random.Random(seed)
    for turn in itertools.count():
        for kind in ("ps", "ring", "script"):
            actions = (*ACTIONS[kind], ENDS[turn % 2])
            victims = VICTIMS[kind]
            yield [
                Kill(kind, action, victims[(turn + number) % len(victims)], _moment(draw))
                for number, action in enumerate(actions)
            ]


def _moment(draw: random.Random) -> str:
    kind = draw.randrange(3)
    if kind == 0:
        return "during"
    return f"change {draw.randint(1, 8)}" if kind == 1 else f"{draw.randrange(0, 3000)} ms"


class JobLife:
    """One job from its submission to its end.

    Args:
        machine: with its agent.
        name: of the job.
        kills: one for each action, in their order.
        on_kill: told of each outcome.
    """

    def __init__(
        self, machine: Machine, name: str, kills: list[Kill], on_kill: Callable[[Outcome], None], seed: int
    ) -> None:
        self._machine = machine
        self._name = name
        self._rival = f"rival-{name}"
        self._kind = kills[0].kind
        self._kills = kills
        self._on_kill = on_kill
        self._draw = random.Random(f"{seed}/{name}")

    def live(self) -> None:
        """All of it.

        Raises:
            NotInTime: it does not go on.
        """
        machine, full = self._machine, 1 if self._kind == "script" else 2
        steps: dict[str, tuple[Callable[[], None], Callable[[], bool]]] = {
            "submit": (lambda: machine.submit(job_content(self._kind, self._name)), lambda: self._trains_with(full)),
            "shrink": (
                lambda: machine.submit(rival_content(self._rival)),
                lambda: machine.facts(self._rival)["workers"] == 1 and self._trains_with(1),
            ),
            "grow": (
                lambda: let_go(machine.folder, self._rival),
                lambda: machine.facts(self._rival)["state"] == "done" and self._trains_with(full),
            ),
            "suspend": (lambda: machine.persist("suspend", {"name": self._name}), self._is_held),
            "resume": (lambda: machine.persist("resume", {"name": self._name}), lambda: self._trains_with(full)),
            "finish": (lambda: let_go(machine.folder, self._name), lambda: self._is_gone("done")),
            "cancel": (lambda: machine.persist("cancel", {"name": self._name}), lambda: self._is_gone("cancelled")),
        }
        for kill in self._kills:
            act, settled = steps[kill.action]
            hit = self._act_and_kill(kill, act, settled)
            machine.wait_for(settled, f"{self._name} after {kill}")
            if hit is not None:
                self._on_kill(Outcome(kill, hit[1], time.monotonic() - hit[0]))
        self._check(self._kills[-1].action)

    def _act_and_kill(
        self, kill: Kill, act: Callable[[], None], settled: Callable[[], bool]
    ) -> tuple[float, str] | None:
        """When it was killed, and what its job was then; None if there was nothing to kill."""
        before = self._on_disk()
        acting = threading.Thread(target=act)
        acting.start()
        if kill.moment == "during":
            time.sleep(self._draw.uniform(0.0, 0.02))
        else:
            if kill.victim != "agent":
                acting.join()
            self._wait_for_moment(kill.moment, before, settled)
        seen = "" if kill.moment == "during" else self._state()
        deadline = time.monotonic() + _NOTHING_SECONDS
        while not self._machine.kill(self._name, kill.victim):
            if time.monotonic() >= deadline or settled():
                acting.join()
                return None
            time.sleep(0.01)
        hit = time.monotonic()
        acting.join()
        return hit, seen

    def _wait_for_moment(self, moment: str, before: object, settled: Callable[[], bool]) -> None:
        if moment.endswith("ms"):
            time.sleep(int(moment.removesuffix(" ms")) / 1000.0)
            return
        deadline = time.monotonic() + _NOTHING_SECONDS
        for number in range(int(moment.removeprefix("change "))):
            while (now := self._on_disk()) == before:
                if time.monotonic() > deadline or (number and settled()):
                    return
                time.sleep(0.001)
            before = now

    def _on_disk(self) -> tuple[tuple[str, int], ...]:
        """All files that agent, launcher and coordinator tell each other by, and when they were written."""
        state = self._machine.folder / "state"
        places = (state / "submitted", state / "jobs", state / "jobs" / self._name)
        found = []
        for path in itertools.chain.from_iterable(_inside(place) for place in places):
            with suppress(OSError):
                if not path.is_dir():
                    found.append((str(path), path.stat().st_mtime_ns))
        return tuple(sorted(found))

    def _state(self) -> str:
        with suppress(AgentUnreachable, JobRefused):
            facts = self._machine.call("jobs", {"name": self._name})["jobs"][0]
            return f"{facts['state']} {facts['note']}".strip()
        return ""

    def _trains_with(self, workers: int) -> bool:
        facts = self._machine.facts(self._name)
        return facts["state"] == "running" and facts["workers"] == workers and self._machine.trains(self._name)

    def _is_gone(self, state: str) -> bool:
        return self._machine.facts(self._name)["state"] == state and not self._machine.processes(self._name)

    def _is_held(self) -> bool:
        """Nothing of it trains; a launcher and a coordinator may wait for its resumption."""
        tasks = [self._machine.process_of(self._name, role) for role in ("server", "worker")]
        return self._machine.facts(self._name)["state"] == "held" and tasks == [None, None]

    def _check(self, end: str) -> None:
        """What has to be true of jobs that have ended."""
        machine = self._machine
        ended = {self._rival: "script"} if self._kind != "script" else {}
        if end == "finish":
            ended[self._name] = self._kind
        lines = [problem_of(machine.folder, kind, name) for name, kind in ended.items()]
        names = [facts["name"] for facts in machine.call("jobs", {})["jobs"]]
        lines += [f"{name}: it is there {names.count(name)} times" for name in ended if names.count(name) != 1]
        left = sorted(path.name for path in machine.jobs_folder.glob(f"*{self._name}.gpus*"))
        lines += [f"{self._name}: it left {left}"] if left else []
        machine.problems += [f"{line} ({self._kills})" for line in lines if line]


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
