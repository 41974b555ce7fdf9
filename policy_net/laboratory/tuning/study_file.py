"""Study as Optuna has it: what to try next, what to give up, and a file of all trials.

Each sampler and pruner is made anew, with a seed of its own, over the trials that it may know: so a study that was
killed, or is run by more processes, goes the same way. The file is one SQLite database in Optuna's own tables, so that
its tools can read it. A trial stands there before it is begun, with its values, and once it has ended, each in one
transaction. One that was under way when the program was killed is begun anew. What the file is a study of stands in it
too; another one is refused.
Source: Bergstra et al. 2011 (tree-structured Parzen estimator, several parameters at once); Golovin et al. 2017 (the
median rule).
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foundation.files import PARTIAL, sync_folder
from policy_net.errors import BadInput, PolicyNetError
from policy_net.laboratory.tuning.space import Space, TunedParameter, Value, Values

if TYPE_CHECKING:
    import optuna
    from optuna.storages import RDBStorage


Scores = tuple[float, ...]
"""Of a trial at its rungs; lower is better."""

STARTUP_TRIALS = 8
"""Tried at random before any is proposed: fewer say nothing of so many parameters."""
TRIALS_BEFORE_GIVING_UP = 4
"""That went to their end; the median of fewer is chance."""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What became of a trial.

    Attributes:
        scores: at each rung that it reached.
        by_world: the log of the average JCT in each world, at the last of them.
        given_up: whether it ended early, as others did better.
        failure: why it has no score, in a few words; None where it has one.
    """

    scores: Scores = ()
    by_world: tuple[float, ...] = ()
    given_up: bool = False
    failure: str | None = None


def propose(
    space: Space, seed: int, known: Sequence[tuple[Values, TrialReport]], under_way: Sequence[Values]
) -> dict[str, Value]:
    """Values for the next trial; the defaults for the first.

    Args:
        known: the trials of earlier batches, in order, and what became of them.
        under_way: values of the trials before this one of the same batch, from which it keeps away.
    """
    number = len(known) + len(under_way)
    if number == 0:
        return space.defaults
    with _quiet() as optuna:
        distributions = distributions_of(space)
        sampler = optuna.samplers.TPESampler(
            seed=int(np.random.SeedSequence((seed, number)).generate_state(1)[0]),
            n_startup_trials=STARTUP_TRIALS,
            multivariate=True,
            constant_liar=True,
        )
        study = optuna.create_study(direction="minimize", sampler=sampler)
        for values, report in known:
            study.add_trial(_ended(values, report, distributions))
        for values in under_way:
            study.add_trial(
                optuna.trial.create_trial(
                    state=optuna.trial.TrialState.RUNNING, params=dict(values), distributions=distributions
                )
            )
        return dict(study.ask(fixed_distributions=distributions).params)


def is_given_up(earlier: Sequence[Scores], scores: Sequence[float]) -> bool:
    """Whether a trial with these scores so far is worse at its rung than the median of those that went to their end."""
    with _quiet() as optuna:
        study = optuna.create_study(direction="minimize")
        states = optuna.trial.TrialState
        for other in earlier:
            study.add_trial(
                optuna.trial.create_trial(
                    state=states.COMPLETE, value=other[-1], intermediate_values=dict(enumerate(other))
                )
            )
        this = optuna.trial.create_trial(state=states.RUNNING, intermediate_values=dict(enumerate(scores)))
        return bool(optuna.pruners.MedianPruner(n_startup_trials=TRIALS_BEFORE_GIVING_UP).prune(study, this))


def distributions_of(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    """The space in Optuna's words."""
    return {item.name: _distribution(item) for item in space.parameters}


def _distribution(item: TunedParameter) -> optuna.distributions.BaseDistribution:
    from optuna import distributions  # noqa: PLC0415  (half a second, and help needs none of it)

    if item.choices:
        return distributions.CategoricalDistribution(item.choices)
    if item.whole:
        return distributions.IntDistribution(int(item.low), int(item.high), log=item.log)
    return distributions.FloatDistribution(item.low, item.high, log=item.log)


def _ended(
    values: Values, report: TrialReport, distributions: dict[str, optuna.distributions.BaseDistribution]
) -> optuna.trial.FrozenTrial:
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415  (as above)

    scores = () if report.failure is not None else report.scores
    state = TrialState.PRUNED if report.given_up else TrialState.COMPLETE
    return create_trial(
        state=state if scores else TrialState.FAIL,
        value=scores[-1] if scores else None,
        params=dict(values),
        distributions=distributions,
        intermediate_values=dict(enumerate(scores)),
    )


@contextmanager
def _quiet() -> Iterator[Any]:
    """Optuna, a module, which tells nobody of studies that live for a moment."""
    import optuna  # noqa: PLC0415  (as above)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield optuna


FILE = "study.sqlite"
VERSION = 2
"""Raised whenever trials of an older study would not be comparable any more."""
_STUDY = "policy-net tune"
_IDENTITY, _WORLDS, _FAILURE, _CONFIRMED = "identity", "log_jct_by_world", "failure", "confirmed"
_BUSY_SECONDS = 60.0
"""For whoever looks at the study meanwhile with a tool of Optuna's."""


class StudyNotWritten(PolicyNetError):
    """The study's file cannot be written or read any more; what is in it stands."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as the file has it; without a report while it is under way."""

    number: int
    values: Mapping[str, Value]
    report: TrialReport | None


class StudyFile:
    """An open study in a folder; `identity` is what two runs of one study agree in beside the space.

    Raises:
        BadInput: the folder holds a study of something else, or of another version, or no study.
        StudyNotWritten: the disk refuses.
    """

    def __init__(self, folder: Path, space: Space, identity: Mapping[str, Any]) -> None:
        self.path = folder / FILE
        self._space = space
        self._distributions = distributions_of(space)
        identity = {"version": VERSION, "space": space.to_json(), **identity}
        if "?" in str(self.path):
            raise BadInput(f"{folder}: a study's folder has no question mark in its name; use another")
        with self._translated():
            if not self.path.exists():
                self._make(identity)
            self._check_file()
            self._storage = _storage(self.path)
            self._study = self._storage.get_study_id_from_name(_STUDY)
            found = self._storage.get_study_user_attrs(self._study).get(_IDENTITY)
        _check_identity(self.path, found, identity)

    def trials(self) -> list[Trial]:
        """All trials by number."""
        with self._translated():
            return [_trial(frozen) for frozen in self._storage.get_all_trials(self._study)]

    def begin(self, values: Mapping[str, Value]) -> int:
        """Write down that a trial with these values is under way; its number."""
        from optuna.trial import TrialState, create_trial  # noqa: PLC0415  (half a second, and help needs none of it)

        template = create_trial(state=TrialState.RUNNING, params=dict(values), distributions=dict(self._distributions))
        with self._translated():
            trial = self._storage.create_new_trial(self._study, template_trial=template)
            return self._storage.get_trial_number_from_id(trial)

    def end(self, number: int, report: TrialReport) -> None:
        """Write down what became of a trial; it is under way until everything is there."""
        from optuna.trial import TrialState  # noqa: PLC0415  (as above)

        with self._translated():
            trial = self._storage.get_trial_id_from_study_id_trial_number(self._study, number)
            for rung, score in enumerate(report.scores):
                self._storage.set_trial_intermediate_value(trial, rung, score)
            self._storage.set_trial_user_attr(trial, _WORLDS, list(report.by_world))
            if report.failure is not None:
                self._storage.set_trial_user_attr(trial, _FAILURE, report.failure)
                self._storage.set_trial_state_values(trial, TrialState.FAIL)
            else:
                state = TrialState.PRUNED if report.given_up else TrialState.COMPLETE
                self._storage.set_trial_state_values(trial, state, [report.scores[-1]])

    def confirmed(self) -> dict[tuple[int, int], tuple[float, ...]]:
        """By the number of a trial and the seed of its training: the log of the average JCT in each world."""
        with self._translated():
            attributes = self._storage.get_study_user_attrs(self._study)
        found = {}
        for name, values in attributes.items():
            kind, _, rest = name.partition(":")
            if kind == _CONFIRMED:
                number, _, seed = rest.partition(":")
                found[int(number), int(seed)] = tuple(float(value) for value in values)
        return found

    def confirm(self, number: int, seed: int, by_world: tuple[float, ...]) -> None:
        """Write down what a trial's settings come to under another seed, on other worlds."""
        with self._translated():
            self._storage.set_study_user_attr(self._study, f"{_CONFIRMED}:{number}:{seed}", list(by_world))

    def close(self) -> None:
        """Let go of the file."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _make(self, identity: Mapping[str, Any]) -> None:
        """A study without trials; it takes its name once it is whole."""
        from optuna.study import StudyDirection  # noqa: PLC0415  (as above)

        partial = self.path.with_name(self.path.name + PARTIAL)
        for left in (partial, partial.with_name(partial.name + "-journal")):
            left.unlink(missing_ok=True)
        storage = _storage(partial)
        try:
            study = storage.create_new_study([StudyDirection.MINIMIZE], _STUDY)
            storage.set_study_user_attr(study, _IDENTITY, dict(identity))
        finally:
            storage.remove_session()
            storage.engine.dispose()
        partial.replace(self.path)
        sync_folder(self.path.parent)

    def _check_file(self) -> None:
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as database:
                tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{self.path}: is no study ({error}); name another folder with --out") from error
        if not {"studies", "trials", "version_info"} <= tables:
            raise BadInput(f"{self.path}: is no study; name another folder with --out")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of SQLite and Optuna in one line; known by their names, as this package knows no SQLAlchemy."""
        from optuna.exceptions import StorageInternalError  # noqa: PLC0415  (as above)

        try:
            yield
        except KeyError as error:
            raise BadInput(f"{self.path}: is somebody else's study; name another folder with --out") from error
        except RuntimeError as error:
            if "schema" not in str(error):
                raise
            message = f"{self.path}: was written by another version of Optuna; name another folder with --out"
            raise BadInput(message) from error
        except Exception as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            reason = getattr(cause, "orig", cause)
            if not isinstance(reason, sqlite3.Error):
                raise
            raise StudyNotWritten(
                f"{self.path}: cannot be written or read ({reason}); free space or mend the disk, and run the same"
                " again: it goes on"
            ) from error


def _storage(path: Path) -> RDBStorage:
    import optuna  # noqa: PLC0415  (as above)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": _BUSY_SECONDS}})


def _trial(frozen: Any) -> Trial:
    if not frozen.state.is_finished():
        return Trial(frozen.number, frozen.params, None)
    scores: Scores = tuple(frozen.intermediate_values[rung] for rung in sorted(frozen.intermediate_values))
    report = TrialReport(
        scores,
        tuple(frozen.user_attrs.get(_WORLDS, ())),
        given_up=frozen.state.name == "PRUNED",
        failure=frozen.user_attrs.get(_FAILURE),
    )
    return Trial(frozen.number, frozen.params, report)


def _check_identity(path: Path, found: Any, identity: Mapping[str, Any]) -> None:
    # As the file has it: tuples are lists there.
    identity = json.loads(json.dumps(identity))
    if found == identity:
        return
    if not isinstance(found, dict) or found.get("version") != VERSION:
        what = f"version {found['version']}" if isinstance(found, dict) and "version" in found else "somebody else"
        raise BadInput(f"{path}: is a study of {what}, and this program's are of version {VERSION}; use another --out")
    for name, value in identity.items():
        if found.get(name) != value:
            raise BadInput(
                f"{path}: {_difference(name, found.get(name), value)}; say the same again, or use another --out"
            )
    raise BadInput(f"{path}: is a study of something else; use another --out")


def _difference(name: str, found: Any, identity: Any) -> str:
    if name != "space" or not isinstance(found, dict):
        return f"is a study with {name.replace('_', ' ')} {json.dumps(found)}, and this one has {json.dumps(identity)}"
    if found.get("policy") != identity["policy"]:
        return f"is a study of {found.get('policy')} policies, and this one is of {identity['policy']} policies"
    names = [[item["name"] for item in space["parameters"]] for space in (found, identity)]
    if names[0] != names[1]:
        return f"is a study of {', '.join(names[0])}, and this one is of {', '.join(names[1])}"
    return "is a study with other bounds or defaults than this one"
