"""Trainings of a moment, and who does them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from policy_net.laboratory.reproduction.dl2 import SCALES
from policy_net.laboratory.reproduction.tasks import Task, do_task


class Inline:
    """Does tasks in this process, and counts them.

    Attributes:
        done: names of all tasks, in order.
        die_at: so many tasks are done, then the program is interrupted.
    """

    def __init__(self, die_at: int | None = None) -> None:
        self.done: list[str] = []
        self.die_at = die_at

    def answers(self, tasks: Sequence[Task]) -> Iterator[tuple[int, None]]:
        for index, task in enumerate(tasks):
            if self.die_at is not None and len(self.done) >= self.die_at:
                raise KeyboardInterrupt
            do_task(task)
            self.done.append(task.name)
            yield index, None

    def close(self) -> None:
        """Nothing runs."""


TINY = replace(
    SCALES["quick"],
    seeds=1,
    workloads=2,
    jobs=4,
    nodes=4,
    updates=4,
    group_updates=2,
    imitation_steps=6,
    demonstrated=1,
    micro_states=100,
)
