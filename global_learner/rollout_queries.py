"""Queries of a rollout's plan: has Prometheus servers asked when it is time, each by a process with a deadline.

Only servers that the learner's settings name are asked, so that a plan cannot send the learner, or a token, anywhere
else. Nothing of it holds up the driver, which asks what is known by now; each answer is on disk before it counts.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import structlog
from sqlalchemy import select

from foundation.text import nearest, plain_line
from global_learner.background_task import BackgroundTask
from global_learner.errors import BadRequest, LearnerError
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.tables import RolloutQueryRow, RolloutRow
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.queries import Query, QueryAnswer, QueryStanding, ShownQuery, after, is_due
from global_learner.rollout.state import RolloutState
from global_learner.scores.replay_process import NoAnswer, process_output
from global_learner.section_settings import RolloutSettings
from global_learner.telemetry import LearnerTelemetry

_log = structlog.get_logger()
_LONGEST_FAULT = 300


# An answer is kept if the rollout still is where it was asked for, which is looked at in the same transaction. Of all
# answers in a stage is kept what they add up to, so that a learner that goes on after a kill knows since when a number
# is good. Every method blocks; the learner calls them on the registry's thread.


class QueryStore:
    """Answers to the queries of all rollouts."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def standings(self, rollout: int, stage: int) -> dict[str, QueryStanding]:
        """What is known in a stage, by the query's name."""
        ours = select(RolloutQueryRow).where(RolloutQueryRow.rollout == rollout, RolloutQueryRow.stage == stage)
        with self._registry.session() as session:
            return {row.query: QueryStanding(**row.standing) for row in session.scalars(ours)}

    def keep_answer(self, rollout: int, stage: int, query: Query, answer: QueryAnswer) -> QueryStanding | None:
        """Keep an answer, and say what is known by it; None, and nothing is kept: the stage is over."""
        with self._registry.transaction() as session:
            row = session.get(RolloutRow, rollout)
            if row is None or row.over or RolloutState.model_validate_json(row.state).stage != stage:
                return None
            known = session.get(RolloutQueryRow, (rollout, stage, query.name))
            before = None if known is None else QueryStanding(**known.standing)
            standing = after(query, before, answer)
            if known is None:
                session.add(RolloutQueryRow(rollout=rollout, stage=stage, query=query.name, standing=asdict(standing)))
            else:
                known.standing = asdict(standing)
            return standing


class RolloutQueries:
    """Used on the learner's event loop; `on_done` is called when more is known, and `command` asks, in a process."""

    def __init__(
        self,
        settings: RolloutSettings,
        registry: RegistryThread,
        telemetry: LearnerTelemetry,
        wall_clock: Callable[[], float],
        on_done: Callable[[], None],
        command: Sequence[str] = (sys.executable, "-m", "global_learner.rollout.prometheus_process"),
    ) -> None:
        self.store = QueryStore(registry.registry)
        self._servers = {server.address: server for server in settings.prometheus}
        self._deadline_seconds = settings.query_deadline_seconds
        self._registry = registry
        self._telemetry = telemetry
        self._wall_clock = wall_clock
        self._on_done = on_done
        self._command = command
        self._task = BackgroundTask("queries")

    async def close(self) -> None:
        """Give up what is under way; it is asked again by whoever goes on."""
        await self._task.close()

    async def finished(self) -> None:
        """Wait until what is asked now is answered, and the answers are on disk."""
        await self._task.finished()

    def check(self, plan: RolloutPlan) -> None:
        """See that every server of a plan may be asked.

        Raises:
            BadRequest: one may not.
        """
        for query in plan.queries:
            if query.address not in self._servers:
                near = nearest(query.address, self._servers)
                advice = f"did you mean {near}?" if near else f"it has {', '.join(self._servers) or 'none'}"
                raise BadRequest(
                    f"the plan's query {query.name} asks {query.address}, which the learner's rollouts.prometheus does "
                    f"not name; {advice}"
                )

    async def known(self, state: RolloutState) -> Mapping[str, QueryStanding]:
        """What is known of the plan's queries in the present stage, by name; asks those whose time it is."""
        queries = [query for query in state.plan.queries if query.is_of(state.current_stage.kind)]
        if not queries:
            return {}
        standings = await self._registry.call(self.store.standings, state.number, state.stage)
        now = self._wall_clock()
        due = [query for query in queries if is_due(query, standings.get(query.name), now)]
        if due:
            self._task.begin(functools.partial(self._ask_all, state, due, standings))
        return standings

    def shown(self, state: RolloutState) -> list[ShownQuery]:
        """How the queries of the present stage stand, or of the one in which it ended; blocks."""
        standings = self.store.standings(state.number, state.stage)
        now = self._wall_clock()
        queries = [query for query in state.plan.queries if query.is_of(state.current_stage.kind)]
        return [ShownQuery.of(query, standings.get(query.name), now) for query in queries]

    async def _ask_all(self, state: RolloutState, due: Sequence[Query], before: Mapping[str, QueryStanding]) -> None:
        try:
            for query in due:
                answer = await self._ask(state, query)
                standing = await self._registry.call(self.store.keep_answer, state.number, state.stage, query, answer)
                if standing is None:
                    return
                self._telemetry.rollout_queries.labels("unanswered" if standing.fault else "answered").inc()
                known = before.get(query.name)
                self._say(state.number, query, "" if known is None else known.fault, standing.fault)
            self._on_done()
        except LearnerError as error:
            _log.warning("queries-wait", rollout=state.number, reason=str(error), advice="tried again")

    async def _ask(self, state: RolloutState, query: Query) -> QueryAnswer:
        texts = query.texts(state.trying, state.untouched)
        server = self._servers.get(query.address)
        found: list[float] | NoAnswer
        if texts is None:
            found = NoAnswer("there are no clusters on one of the two sides of it")
        elif server is None:
            found = NoAnswer("the learner's rollouts.prometheus no longer names its server")
        else:
            question = {
                "address": server.address,
                "token_file": str(server.token_file or ""),
                "ca_file": str(server.ca_file or ""),
                "queries": texts,
                "deadline_seconds": self._deadline_seconds,
                "parent": os.getpid(),
            }
            found = await self._answers(question, len(texts))
        now = self._wall_clock()
        if isinstance(found, NoAnswer):
            return QueryAnswer(now, fault=plain_line(found.reason, _LONGEST_FAULT))
        return QueryAnswer(now, found[0], found[1] if len(found) > 1 else None)

    async def _answers(self, question: Mapping[str, object], count: int) -> list[float] | NoAnswer:
        out = await process_output(self._command, self._deadline_seconds, json.dumps(question).encode())
        if isinstance(out, NoAnswer):
            return out
        try:
            numbers = [float(number) for number in json.loads(out)]
        except (ValueError, TypeError):
            numbers = []
        return numbers if len(numbers) == count else NoAnswer("its process printed no numbers")

    def _say(self, rollout: int, query: Query, before: str, fault: str) -> None:
        """A line when answers begin to fail, or come again; not one for each."""
        if fault and not before:
            _log.warning("query-unanswered", rollout=rollout, query=query.name, address=query.address, reason=fault)
        elif before and not fault:
            _log.info("query-answered-again", rollout=rollout, query=query.name)
