"""Policies of a user's own: `module:function`, loaded from the current folder or from what is installed.

The function takes a `PolicyContext` and returns a `SchedulerPolicy`, as those of `policy_net.baselines` do.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from foundation.errors import ExpectedError
from foundation.files import is_file
from policy_net.domain import PolicyContext
from policy_net.errors import BadInput
from policy_net.policy import PolicyFactory, SchedulerPolicy, policy_names, register_policy

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def register_own(names: Iterable[str]) -> None:
    """Register those names that are of the form `module:function`; nothing else is looked at.

    Raises:
        BadInput: the module cannot be imported, or has no such function.
    """
    for name in names:
        if _NAME.fullmatch(name) and name not in policy_names() and not is_file(Path(name)):
            register_policy(name, _factory_of(name))


def _factory_of(name: str) -> PolicyFactory:
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ExpectedError:
        raise
    except Exception as error:
        raise BadInput(
            f"--policy {name}: module {module} cannot be imported ({type(error).__name__}: {error}); it is looked for"
            " in the current folder and among what is installed"
        ) from error
    if not callable(found):
        raise BadInput(f"--policy {name}: module {module} has no function {function}")

    def build(context: PolicyContext) -> SchedulerPolicy:
        policy = cast(PolicyFactory, found)(context)
        if not isinstance(policy, SchedulerPolicy):
            raise BadInput(
                f"--policy {name}: returns a {type(policy).__name__}, which is no scheduler; it needs name,"
                " decide(state, trigger) and observe(progress)"
            )
        return policy

    return build
