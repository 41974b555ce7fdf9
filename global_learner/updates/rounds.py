"""Rounds of a Flower strategy on the fleet; what each round ends with is brought into the log.

The strategy is Flower's, unmodified: `strategy.start(grid=…)` in a thread, which hands over the weights after every
round where Flower lets a server evaluate them. A round without a sound answer leaves no trace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from global_learner.aggregation.flower import array_record, build_strategy, flat_weights, flower
from global_learner.aggregation.settings import AggregationSettings
from global_learner.errors import LearnerError, Rejection, UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.head import Head
from global_learner.updates.parts import MakeRecords, Process
from policy_net.exchange.spec import Weights, WeightSpec
from policy_net.exchange.wire import GradientUpdate, RoundAnswer, RoundKind, RoundTask

if TYPE_CHECKING:
    from global_learner.updates.grid import FleetGrid

_log = structlog.get_logger()

_POLL_SECONDS = 1.0
"""A poll without a task is answered after this, and asked again at once: so a task is noticed within milliseconds."""
_LIVE_SECONDS = 10.0
"""A cluster that has not polled or answered for this long takes no part; ten polls, or one slow gradient."""
_END_SECONDS = 10.0
"""Longest wait for the strategy's thread at the end; it sleeps a second at a time while there are too few clusters."""


class Rounds:
    """Owns the strategy's thread and the grid; create, `start`, use and `close` it on one event loop.

    Args:
        record: has a round's records made, logged and applied; they are on disk when it is done.
        process: is told why there will be no more rounds, if that was not wanted.
    """

    def __init__(
        self,
        settings: AggregationSettings,
        ingest: IngestSettings,
        spec: WeightSpec,
        head: Head,
        record: Callable[[MakeRecords], Awaitable[Sequence[AppliedUpdate]]],
        process: Process,
    ) -> None:
        flower()
        from global_learner.updates.grid import FleetGrid  # noqa: PLC0415  # imports Flower, which only rounds pay for

        self._settings = settings
        self._ingest = ingest
        self._spec = spec
        self._head = head
        self._record = record
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._incarnations: dict[str, int] = {}
        self._new_grid: Callable[[], FleetGrid] = lambda: FleetGrid(
            spec, uuid.uuid4().hex[:12], _LIVE_SECONDS, self._woken
        )
        self.grid = self._new_grid()
        self._thread = self._new_thread()

    def start(self) -> None:
        """Begin the first round as soon as there are clusters enough."""
        self._thread.start()

    def restart(self) -> None:
        """Give up the round that is under way, and begin anew from the head as it is now."""
        if self._thread.ident is not None:
            self.grid.close()
            self.grid = self._new_grid()
            self._thread = self._new_thread()
            self._thread.start()

    async def close(self) -> None:
        """Give up the round that is under way, and end."""
        self.grid.close()
        self._wake.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, _END_SECONDS)

    async def poll(self, cluster: str, incarnation: int) -> RoundTask | None:
        """The cluster's task; None after a while without."""
        self._incarnations[cluster] = incarnation
        task = self.grid.poll(cluster)
        if task is None:
            self._wake.clear()
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                return None
            task = self.grid.poll(cluster)
        return task

    def answer(self, cluster: str, answer: RoundAnswer) -> bool:
        """Take an answer; False if its task is over.

        Raises:
            UpdateRejected: it is not sound; the strategy is told that there is none.
        """
        task = self.grid.task(cluster, answer.task)
        if task is None:
            return False
        if not answer.error:
            try:
                self._check(task, answer)
            except UpdateRejected as rejected:
                self.grid.answer(cluster, dataclasses.replace(answer, error=str(rejected)))
                raise
        samples = min(answer.samples, self._settings.samples_limit)
        return self.grid.answer(cluster, dataclasses.replace(answer, samples=samples))

    def _check(self, task: RoundTask, answer: RoundAnswer) -> None:
        """The rules of a pushed update, for an answer."""
        if answer.samples < 1:
            raise UpdateRejected(Rejection.BAD_SAMPLES, f"{answer.samples} samples")
        if task.kind is not RoundKind.TRAIN:
            return
        if answer.weights.shape != task.weights.shape:
            raise UpdateRejected(
                Rejection.WRONG_SHAPE,
                f"the answer has {answer.weights.size} values, the spec {task.weights.size} parameters",
            )
        if not np.isfinite(answer.weights).all():
            raise UpdateRejected(Rejection.NOT_FINITE, "the weights hold NaN or infinity")
        with np.errstate(over="ignore"):
            moved = float(np.linalg.norm((answer.weights - task.weights).astype(np.float64)))
        norm = moved / (self._settings.client_learning_rate * self._settings.local_steps)
        if norm > self._ingest.max_gradient_norm:
            raise UpdateRejected(
                Rejection.NORM_TOO_LARGE,
                f"the weights moved as by gradients of norm {norm:.3g}, beyond {self._ingest.max_gradient_norm:g}",
            )

    def _woken(self) -> None:
        """From the strategy's thread: there are tasks."""
        self._loop.call_soon_threadsafe(self._wake.set)

    def _new_thread(self) -> threading.Thread:
        # The weights are copied here, on the event loop; the thread would see them while they change.
        initial = self._head.weights.copy()
        return threading.Thread(target=self._run, args=(self.grid, initial), name="rounds", daemon=True)

    def _run(self, grid: FleetGrid, initial: Weights) -> None:
        """In the thread: the strategy, until the grid is closed."""
        from flwr.app import ConfigRecord  # noqa: PLC0415

        from global_learner.updates.grid import GridClosed  # noqa: PLC0415

        settings = self._settings
        strategy = build_strategy(
            settings.strategy,
            settings.parameters,
            min_train_nodes=settings.min_clusters,
            min_evaluate_nodes=settings.min_clusters,
            min_available_nodes=settings.min_clusters,
        )
        try:
            strategy.start(
                grid=grid,
                initial_arrays=array_record(initial, self._spec),
                num_rounds=sys.maxsize,
                timeout=settings.round_seconds,
                train_config=ConfigRecord(
                    {"learning-rate": settings.client_learning_rate, "local-steps": settings.local_steps}
                ),
                evaluate_fn=lambda number, arrays: self._adopt(grid, number, arrays),
            )
        except GridClosed:
            return
        except Exception as error:
            _log.exception("rounds-failed", strategy=settings.strategy)
            failure = LearnerError(f"strategy {settings.strategy} failed in a round: {error}; see the log")
            self._loop.call_soon_threadsafe(self._process.fail, failure)

    def _adopt(self, grid: FleetGrid, number: int, arrays: Any) -> None:
        """What Flower calls after every round, and once before the first."""
        trained, grid.trained = grid.trained, []
        if number == 0 or not trained:
            return
        weights = flat_weights(arrays, self._spec)
        if not np.isfinite(weights).all():
            raise ValueError(f"round {number} ended with weights that are not finite")
        asyncio.run_coroutine_threadsafe(self._log_round(grid, number, trained, weights), self._loop).result()

    async def _log_round(
        self, grid: FleetGrid, number: int, trained: Sequence[tuple[str, RoundAnswer]], weights: Weights
    ) -> None:
        if grid is not self.grid:
            return
        if not await self._record(lambda step: self._records(grid, trained, weights, step)):
            _log.info("round-dropped", round=number, reason="the head was reset")
            return
        _log.info("round-ended", round=number, head_step=self._head.step, clusters=[cluster for cluster, _ in trained])

    def _records(
        self, grid: FleetGrid, trained: Sequence[tuple[str, RoundAnswer]], weights: Weights, next_step: int
    ) -> list[AppliedUpdate]:
        """A round's records; none if the head was reset: the thread ends when it asks its grid again."""
        records: list[AppliedUpdate] = []
        if grid is not self.grid:
            return records
        for step, (cluster, answer) in enumerate(trained, start=next_step):
            last = step == next_step + len(trained) - 1
            incarnation = self._incarnations[cluster]
            update = GradientUpdate(
                cluster,
                incarnation,
                self._head.ledger.sequences(cluster, incarnation).highest + 1,
                step - 1,
                self._spec.digest,
                weights if last else np.empty(0, np.float32),
                answer.samples,
                float(answer.samples),
            )
            kind = UpdateKind.ROUND_END if last else UpdateKind.ROUND_PART
            rate = self._settings.client_learning_rate
            records.append(AppliedUpdate(step, rate, len(trained), self._process.wall_clock(), update, kind))
        return records
