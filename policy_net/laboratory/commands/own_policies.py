"""Policies of a user's own: `module:function`, from the current folder or from what is installed.

The function takes a `PolicyContext` and returns a `SchedulerPolicy`, as those of `policy_net.baselines` do. Errors of
the user's code become one line with its place in that code.
"""

from __future__ import annotations

import copy
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from foundation.errors import ExpectedError
from foundation.files import is_file
from foundation.text import plain_line
from policy_net.domain import Allocation, ClusterState, Decision, PolicyContext, Progress, Share, Trigger
from policy_net.errors import BadInput
from policy_net.policy import PolicyFactory, SchedulerPolicy, policy_names, register_policy, shown_name

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_SUFFIX = ".py"
USUAL_FUNCTION = "build"
"""Function of a file that is named alone."""
_BUILDS = "it must take a PolicyContext and return a scheduler"
_IS_ONE = "a scheduler has name, decide(state, trigger) and observe(progress)"
_DECIDES = "it must return a Decision of policy_net.domain, with an Allocation of whole numbers ≥ 0 by job id"


def own_names(names: Iterable[str]) -> list[str]:
    """The same names; a Python file of the current folder, `mine.py` or `mine`, as `mine:build`.

    Raises:
        BadInput: a Python file lies elsewhere.
    """
    return [_of_file(name) for name in names]


def _of_file(name: str) -> str:
    if name in policy_names() or (is_file(Path(name)) and not name.endswith(_SUFFIX)):
        return name
    path = Path(name if name.endswith(_SUFFIX) else name + _SUFFIX)
    if not is_file(path):
        return name
    here = Path.cwd()
    whole = path.resolve()
    parts = whole.relative_to(here.resolve()).with_suffix("").parts if whole.is_relative_to(here.resolve()) else ()
    found = f"{'.'.join(parts)}:{USUAL_FUNCTION}"
    if not path.stem.isidentifier():
        raise BadInput(
            f"--policy {shown_name(name)}: Python can import no file of this name; rename it, such as my_scheduler.py"
        )
    if not _NAME.fullmatch(found):
        raise BadInput(
            f"--policy {shown_name(name)}: a Python file is named as module:function, from the current folder: go to"
            f" {plain_line(str(path.parent), 200)} and write --policy {path.stem}:{USUAL_FUNCTION}"
        )
    return found


def register_own(names: Iterable[str]) -> None:
    """Register the names of the form `module:function`.

    Raises:
        BadInput: the module cannot be imported, or has no such function.
    """
    for name in names:
        if _NAME.fullmatch(name) and name not in policy_names() and not is_file(Path(name)):
            register_policy(name, _factory_of(name))


def _factory_of(name: str) -> PolicyFactory:
    module_name, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ExpectedError:
        raise
    except Exception as error:
        raise BadInput(
            f"--policy {name}: module {module_name} cannot be imported ({type(error).__name__}: {error}); it is looked"
            " for in the current folder and among what is installed"
        ) from error
    local = Path(here, *module_name.split(".")).with_suffix(".py")
    if is_file(local) and not _is_of(module, local):
        raise BadInput(
            f"--policy {name}: Python has a module {module_name} already, and does not import {local.name} from here;"
            " rename the file, such as my_scheduler.py"
        )
    found = getattr(module, function, None)
    if not callable(found):
        raise BadInput(f"--policy {name}: module {module_name} has no function {function}")
    return _Builder(name, module, cast(PolicyFactory, found))


def _is_of(module: ModuleType, file: Path) -> bool:
    imported = getattr(module, "__file__", None)
    return imported is not None and is_file(Path(imported)) and Path(imported).samefile(file)


class _Builder:
    """Builder of a user's policy, checked."""

    def __init__(self, name: str, module: ModuleType, function: PolicyFactory) -> None:
        self._code = _UsersCode(name, module)
        self._function = function
        self.__module__ = module.__name__  # of which a figure's version is taken

    def __call__(self, context: PolicyContext) -> SchedulerPolicy:
        """Raises BadInput if the function raises, or returns no scheduler."""
        policy: object = self._code.call(self._function, context, must=_BUILDS)
        if isinstance(policy, type):
            what = f"returns the class {policy.__name__}, and not one of it; write {policy.__name__}()"
            raise self._code.wrong(what, self._function)
        if not isinstance(policy, SchedulerPolicy):
            what = f"returns a {type(policy).__name__}, which is no scheduler; {_IS_ONE}"
            raise self._code.wrong(what, self._function)
        if not isinstance(policy.name, str):
            raise self._code.wrong(f"the scheduler's name is {plain_line(repr(policy.name), 60)}; make it a text", None)
        ours = type(policy).__module__.partition(".")[0] == __name__.partition(".")[0]
        return policy if ours else _Checked(policy, self._code)


class _UsersCode:
    """Module of a user, for calls and error messages."""

    def __init__(self, name: str, module: ModuleType) -> None:
        self._name = name
        self._file = getattr(module, "__file__", None) or ""

    def call(self, function: Callable[..., Any], *arguments: object, must: str) -> Any:
        """Result of a function.

        Raises:
            BadInput: it raised; in place of all but those errors that explain themselves.
        """
        try:
            return function(*arguments)
        except ExpectedError:
            raise
        except Exception as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file]
            where = self._at(frames[-1].lineno) if frames else self.place_of(function)
            called = getattr(function, "__name__", type(function).__name__)
            raise BadInput(
                f"--policy {self._name}: {called} raises {type(error).__name__}: {plain_line(str(error))}{where};"
                f" {must} (--debug shows the traceback)"
            ) from error

    def wrong(self, what: str, function: object) -> BadInput:
        """Error on a result of the function, or on the scheduler."""
        return BadInput(f"--policy {self._name}: {what}{self.place_of(function)}")

    def place_of(self, function: object) -> str:
        """Place of a function in brackets; else the file."""
        code = getattr(function, "__code__", None)
        return self._at(None) if code is None else self._at(code.co_firstlineno, code.co_filename)

    def _at(self, line: int | None, file: str | None = None) -> str:
        shown = plain_line(file or self._file or self._name, 200)
        return f" ({shown})" if line is None else f" ({shown}, line {line})"


class _Checked:
    """Scheduler of a user, each decision of which is checked before the simulation takes it."""

    def __init__(self, policy: SchedulerPolicy, code: _UsersCode) -> None:
        self._policy = policy
        self._code = code

    @property
    def name(self) -> str:
        """The scheduler's own name."""
        return self._policy.name

    @property
    def inference_seconds(self) -> Sequence[float]:
        """Times of single actions, where the scheduler takes them."""
        return getattr(self._policy, "inference_seconds", ())

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Raises BadInput if the scheduler raises, or returns no decision."""
        decision: object = self._code.call(self._policy.decide, state, trigger, must=_DECIDES)
        if not isinstance(decision, Decision):
            raise self._code.wrong(f"decide returns a {type(decision).__name__}; {_DECIDES}", self._policy.decide)
        if not isinstance(decision.allocation, Mapping):
            raise self._wrong("allocation", decision.allocation)
        for job_id, allocation in decision.allocation.items():
            if not _is_allocation(allocation):
                raise self._wrong(f"allocation of {plain_line(repr(job_id), 60)}", allocation)
        if decision.placement is not None and not _is_placement(decision.placement):
            raise self._wrong("placement", decision.placement)
        return decision

    def observe(self, progress: Sequence[Progress]) -> None:
        """Raises BadInput if the scheduler raises."""
        self._code.call(self._policy.observe, progress, must="it must take a sequence of Progress")

    def __deepcopy__(self, memo: dict[int, Any]) -> _Checked:
        """Raises BadInput if the scheduler cannot be copied, as one with an open file cannot."""
        copied = self._code.call(copy.deepcopy, self._policy, memo, must="a scheduler is copied for each replay")
        return _Checked(copied, self._code)

    def _wrong(self, what: str, value: object) -> BadInput:
        shown = plain_line(repr(value), 60)
        return self._code.wrong(f"the {what} that decide returns is {shown}; {_DECIDES}", self._policy.decide)


def _is_allocation(value: object) -> bool:
    return isinstance(value, Allocation) and all(
        isinstance(number, Integral) and number >= 0 for number in (value.workers, value.ps)
    )


def _is_placement(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(shares, Sequence)
        and all(isinstance(share, Share) and _is_allocation(share.allocation) for share in shares)
        for shares in value.values()
    )
