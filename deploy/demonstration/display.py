"""The display while the fleet runs: a live table on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from foundation.figures import counted
from foundation.tables import NOTHING
from global_learner.policyctl.views import FleetColumn, fleet_facts, fleet_table
from policy_net.exchange.generated import fleet_pb2

PLAIN_LINE_SECONDS = 10.0
"""Between two lines where there is no terminal: enough to see life in a log, not enough to fill it."""
LINE_WORDS = (
    "(head step: updates so far; staleness: by how many of them gradients come late; slot: 20 simulated minutes; JCT:"
    " job completion time; DRF: what another scheduler needs for the same jobs)"
)
"""Said before the first of these lines."""


class Display:
    """Shows the phases of the demo and the fleet's state; a context, so that the terminal is always given back."""

    def __init__(self, slot_seconds: float, console: Console | None = None) -> None:
        self._slot_seconds = slot_seconds
        self.console = console or Console(file=sys.stdout)
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(bar_width=40), TimeElapsedColumn())
        self._task: TaskID = self._bar.add_task("starting", total=1.0)
        self._live: Live | None = None
        self._fleet: fleet_pb2.GetFleetReply | None = None
        self._spoke_seconds = -PLAIN_LINE_SECONDS

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live = Live(self._picture(), console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def phase(self, what: str, elapsed_seconds: float = -PLAIN_LINE_SECONDS) -> None:
        """A new part of the demo begins, or what goes on in it is said anew; its bar starts at zero."""
        self._bar.update(self._task, description=what, completed=0.0)
        self._spoke_seconds = elapsed_seconds
        if self._live is None:
            self.console.print(what, soft_wrap=True)
        else:
            self._live.update(self._picture())

    def is_due(self, elapsed_seconds: float) -> bool:
        """Whether the last line is so old that there may be another one."""
        return elapsed_seconds - self._spoke_seconds >= PLAIN_LINE_SECONDS

    def say(self, line: str) -> None:
        """A line that stays, above what is live."""
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)

    def progress(self, share: float) -> None:
        """How much of this part is done, 0 to 1."""
        self._bar.update(self._task, completed=min(share, 1.0))

    def fleet(self, fleet: fleet_pb2.GetFleetReply, elapsed_seconds: float) -> None:
        """Show the fleet as it is now."""
        first, self._fleet = self._fleet is None, fleet
        if self._live is not None:
            self._live.update(self._picture())
        elif self.is_due(elapsed_seconds):
            if first:
                self.console.print(LINE_WORDS, soft_wrap=True, markup=False, highlight=False)
            self._spoke_seconds = elapsed_seconds
            self.console.print(self._line(fleet, elapsed_seconds), soft_wrap=True)

    def _picture(self) -> Group | Progress:
        if self._fleet is None:
            return self._bar
        return Group(fleet_table(fleet_facts(self._fleet, order=FleetColumn.CLUSTER)), self._bar)

    def _line(self, fleet: fleet_pb2.GetFleetReply, elapsed_seconds: float) -> str:
        clusters = "; ".join(
            f"{view.cluster} slot {view.status.time_seconds / self._slot_seconds:.0f},"
            f" {counted(view.status.jobs_done, 'job')} done,"
            f" average JCT {_hours(view.status.avg_jct_seconds)} (DRF {_hours(view.status.baseline_jct_seconds)})"
            for view in sorted(fleet.clusters, key=lambda view: view.cluster)
        )
        return (
            f"{elapsed_seconds:4.0f} s  head step {fleet.head_step}, v{fleet.latest_version},"
            f" median staleness {fleet.staleness_p50:.0f} steps | {clusters}"
        )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds > 0 else NOTHING
