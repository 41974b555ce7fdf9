"""Store of what Prometheus answered to a rollout's queries; a table of the registry's database.

An answer is kept if the rollout still is where it was asked for, which is looked at in the same transaction. Of all
answers in a stage is kept what they add up to, so that a learner that goes on after a kill knows since when a number is
good. Every method blocks; the learner calls them on the registry's thread.
"""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import select

from global_learner.registry.registry import Registry
from global_learner.registry.tables import RolloutQueryRow, RolloutRow
from global_learner.rollout.queries import Query, QueryAnswer, QueryStanding, after
from global_learner.rollout.state import RolloutState


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
