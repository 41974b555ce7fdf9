"""Queries of a plan: numbers of a Prometheus server, as one more test of a rollout's stages.

A number has to be within its bounds for a while before the stage passes, and beyond them for as long before it fails.
Without an answer the stage waits, and then an operator is asked. No I/O and no clock: answers are handed in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from global_learner.section_settings import PrometheusAddress
from policy_net.settings import Section

if TYPE_CHECKING:
    from global_learner.rollout.verdicts.verdict import Verdict

CLUSTERS = "$clusters"
"""Placeholder in a query for its clusters, as a regular expression."""
LEAST_ANSWERS = 3
"""Answers in a row before they count, however short `hold_minutes` is."""
_LONGEST_GAP = 5.0
"""Longest time between two answers of a run, in times of `every_seconds`."""
_PLACE = re.compile(r"""=~\s*(["'])\$clusters\1""")
_PLACE_LIKE = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
_MINUTE_SECONDS = 60.0


Bound = Annotated[float, Field(ge=-1e15, le=1e15)]


class Query(Section):
    """A number of Prometheus, and what it must be."""

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """Small letters, digits and '-'; by it people and the database know the query."""
    address: PrometheusAddress
    """Of the server; one of the learner's `rollouts.prometheus`."""
    query: str = Field(min_length=1, max_length=4000)
    """PromQL that gives one number; `$clusters` stands for the clusters, as in `{cluster=~"$clusters"}`."""
    at_most: Bound | None = None
    """The largest number that is good."""
    at_least: Bound | None = None
    """The smallest one."""
    against: Literal["bound", "incumbent"] = "bound"
    """`bound`: the bounds are numbers. `incumbent`: they are times what the same query gives of the clusters that the
    candidate has not reached."""
    stages: tuple[Literal["shadow", "canary", "wave", "fleet"], ...] = ()
    """In which it is asked; unless named canary, wave and fleet, and with `incumbent` canary and wave."""
    every_seconds: float = Field(60.0, ge=1.0, le=3600.0)
    """How often it is asked."""
    hold_minutes: float = Field(30.0, gt=0.0, le=7 * 24 * 60.0)
    """How long the number has to be good before a stage passes, and bad before it fails."""
    ask_after_minutes: float = Field(120.0, gt=0.0, le=7 * 24 * 60.0)
    """Without an answer for so long an operator is asked, where nothing else is waited for."""

    @model_validator(mode="after")
    def _check(self) -> Query:
        if not self.query.strip() or not self.query.replace("\n", " ").isprintable():
            raise ValueError(f"query {self.name}: its PromQL is empty, or not text")
        places = len(_PLACE.findall(self.query))
        if places != len(_PLACE_LIKE.findall(self.query)):
            raise ValueError(f"query {self.name}: only {CLUSTERS} is filled in, and only where =~ and quotes are "
                             f'around it: write cluster=~"{CLUSTERS}"')  # fmt: skip
        if self.at_most is None and self.at_least is None:
            raise ValueError(f"query {self.name} has no bound: give at_most, at_least or both")
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise ValueError(f"query {self.name}: at_least is above at_most, so that no number is good; exchange them")
        if self.hold_minutes * _MINUTE_SECONDS < (LEAST_ANSWERS - 1) * self.every_seconds:
            raise ValueError(f"query {self.name}: {self.hold_minutes:g} minutes are too short for {LEAST_ANSWERS} "
                             f"answers, one each {self.every_seconds:g} s: raise hold_minutes")  # fmt: skip
        if self.against == "incumbent":
            if not places:
                raise ValueError(f"query {self.name}: without {CLUSTERS} its number is the same for both versions")
            if min(bound for bound in (self.at_most, self.at_least) if bound is not None) < 0.0:
                raise ValueError(f"query {self.name}: bounds are times the incumbent's number: use 0 or more")
            if alone := [stage for stage in self.stages if stage in ("shadow", "fleet")]:
                raise ValueError(f"query {self.name}: in stage {alone[0]} no cluster is left to compare with: use "
                                 "canary and wave, or against: bound")  # fmt: skip
        return self

    def is_of(self, stage: str) -> bool:
        """Whether the query is asked in a stage."""
        usual = ("canary", "wave") if self.against == "incumbent" else ("canary", "wave", "fleet")
        return stage in (self.stages or usual)

    def texts(self, trying: Collection[str], untouched: Collection[str]) -> tuple[str, ...] | None:
        """The PromQL for the candidate's clusters and, if compared, for the others; None without clusters."""
        groups = (trying, untouched) if self.against == "incumbent" else (trying,)
        if CLUSTERS in self.query and not all(groups):
            return None
        return tuple(self.query.replace(CLUSTERS, _one_of(group)) for group in groups)


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """Answer to a query: the candidate's and the incumbent's numbers, or a fault."""

    unix_seconds: float
    value: float | None = None
    incumbent: float | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class QueryStanding:
    """Standing of a query in a stage: its latest answer, and the run of answers that say the same.

    Attributes:
        value, incumbent, answered_unix_seconds: of the latest answer with a number.
        fault: why the latest question had none; empty if it had.
        good: whether the answers of the run are within the bounds.
        run_unix_seconds: when the run began.
        run_answers: its length.
    """

    asked_unix_seconds: float
    answered_unix_seconds: float | None = None
    value: float | None = None
    incumbent: float | None = None
    fault: str = ""
    good: bool = False
    run_unix_seconds: float = 0.0
    run_answers: int = 0


@dataclass(frozen=True, slots=True)
class ShownQuery:
    """A query for people: its state (good, bad, waiting, unanswered or unasked), and a line that says why."""

    name: str
    state: str
    said: str
    standing: QueryStanding | None

    @classmethod
    def of(cls, query: Query, standing: QueryStanding | None, now: float) -> ShownQuery:
        """The query's standing at a time."""
        return cls(query.name, state_of(query, standing, now), line_of(query, standing, now), standing)


def within(query: Query, value: float, incumbent: float | None) -> bool | str:
    """Whether a number is within the bounds; a text: why that is not defined."""
    scale = 1.0
    if query.against == "incumbent":
        if incumbent is None or incumbent < 0.0:
            return f"the incumbent's number is {incumbent}: nothing can be so many times more"
        if incumbent == 0.0 and value > 0.0 and query.at_most is not None:
            return "the incumbent's number is 0: any other one is endlessly many times more"
        scale = incumbent
    above = query.at_most is not None and value > query.at_most * scale
    below = query.at_least is not None and value < query.at_least * scale
    return not (above or below)


def after(query: Query, standing: QueryStanding | None, answer: QueryAnswer) -> QueryStanding:
    """The standing after one more answer."""
    fault, good = answer.fault, False
    if not fault:
        numbers = [number for number in (answer.value, answer.incumbent) if number is not None]
        if answer.value is None or not all(map(math.isfinite, numbers)):
            fault = f"{' and '.join(map(str, numbers)) or 'nothing'} is no number"
        elif isinstance(found := within(query, answer.value, answer.incumbent), str):
            fault = found
        else:
            good = found
    known = standing or QueryStanding(answer.unix_seconds)
    if fault:
        return replace(known, asked_unix_seconds=answer.unix_seconds, fault=fault)
    now, before = answer.unix_seconds, known.answered_unix_seconds
    goes_on = before is not None and known.good is good and 0.0 <= now - before <= _LONGEST_GAP * query.every_seconds
    return QueryStanding(
        now,
        now,
        answer.value,
        answer.incumbent,
        good=good,
        run_unix_seconds=known.run_unix_seconds if goes_on else now,
        run_answers=known.run_answers + 1 if goes_on else 1,
    )


def is_due(query: Query, standing: QueryStanding | None, now: float) -> bool:
    """Whether it is time to ask; a clock that went back is no reason to wait."""
    return standing is None or not 0.0 <= now - standing.asked_unix_seconds < query.every_seconds


def decided(query: Query, standing: QueryStanding | None, now: float) -> bool | None:
    """Whether the number is good (or bad, False) for long enough; None: neither."""
    if standing is None or standing.fault or standing.answered_unix_seconds is None:
        return None
    seconds = standing.answered_unix_seconds - standing.run_unix_seconds
    fresh = 0.0 <= now - standing.answered_unix_seconds <= _LONGEST_GAP * query.every_seconds
    enough = standing.run_answers >= LEAST_ANSWERS and seconds >= query.hold_minutes * _MINUTE_SECONDS
    return standing.good if fresh and enough else None


def with_queries(
    verdict: Verdict,
    queries: Sequence[Query],
    standings: Mapping[str, QueryStanding],
    now: float,
    *,
    stage_unix_seconds: float,
    over_seconds: float,
) -> Verdict:
    """A stage's verdict with its queries: nothing passes before each number was good for long enough.

    Args:
        verdict: from everything else.
        standings: by the query's name.
        stage_unix_seconds: when the stage began.
        over_seconds: since the end of the stage's time; below 0 before it.
    """
    from global_learner.rollout.verdicts.verdict import StageOutcome  # noqa: PLC0415  (plans are checked without statistics)

    if verdict.outcome is StageOutcome.FAIL:
        return verdict
    known = {query.name: decided(query, standings.get(query.name), now) for query in queries}
    bad = [query for query in queries if known[query.name] is False]
    if bad:
        faults = tuple(line_of(query, standings.get(query.name), now) for query in bad)
        return replace(verdict, outcome=StageOutcome.FAIL, reasons=faults)
    reasons = (*verdict.reasons, *(line_of(query, standings.get(query.name), now) for query in queries))
    waits_for = [query for query in queries if known[query.name] is None]
    if not waits_for or verdict.outcome is not StageOutcome.PASS:
        return replace(verdict, reasons=reasons)
    asks = any(
        now - _last_answer(standings.get(query.name), stage_unix_seconds) >= query.ask_after_minutes * _MINUTE_SECONDS
        or over_seconds >= query.hold_minutes * _MINUTE_SECONDS
        for query in waits_for
    )
    return replace(verdict, outcome=StageOutcome.INCONCLUSIVE if asks else StageOutcome.WAIT, reasons=reasons)


def state_of(query: Query, standing: QueryStanding | None, now: float) -> str:
    """State of a query: good, bad, waiting, unanswered or unasked."""
    if standing is None:
        return "unasked"
    known = decided(query, standing, now)
    if known is not None:
        return "good" if known else "bad"
    return "unanswered" if standing.fault else "waiting"


def line_of(query: Query, standing: QueryStanding | None, now: float) -> str:
    """State of a query in a line, for people."""
    if standing is None:
        return f"query {query.name}: not asked yet"
    if standing.fault:
        return f"query {query.name}: no answer: {standing.fault}"
    stands = f"{standing.value:g}" if standing.incumbent is None else f"{standing.value:g} to {standing.incumbent:g}"
    place = "within its bounds" if standing.good else f"beyond its bounds ({bounds_of(query)})"
    answered = standing.answered_unix_seconds or 0.0
    minutes = (answered - standing.run_unix_seconds) / _MINUTE_SECONDS
    old = "" if now - answered <= _LONGEST_GAP * query.every_seconds else ", and nothing newer is known"
    return f"query {query.name}: {stands} is {place}, for {minutes:.0f} of {query.hold_minutes:g} min{old}"


def bounds_of(query: Query) -> str:
    """Bounds of a query, for people."""
    times = " times the incumbent's" if query.against == "incumbent" else ""
    named = [("at least", query.at_least), ("at most", query.at_most)]
    return ", ".join(f"{word} {bound:g}{times}" for word, bound in named if bound is not None)


def _last_answer(standing: QueryStanding | None, stage_unix_seconds: float) -> float:
    answered = None if standing is None else standing.answered_unix_seconds
    return stage_unix_seconds if answered is None else max(answered, stage_unix_seconds)


def _one_of(clusters: Collection[str]) -> str:
    """Names as one regular expression; '.' is the one letter of a name that means something there."""
    return "|".join(name.replace(".", "[.]") for name in sorted(clusters))
