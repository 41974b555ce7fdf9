"""The trained `set` policy that ships with the package: what `--policy set` is, and where a new fleet may start.

Made by `python -m benchmarks.set_default`, on generated workloads alone; its card (`policy-net inspect`) has the seeds
and the scores.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from policy_net.domain import PolicyContext
from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import PolicyFile, read_policy_file
from policy_net.exchange.set_spec import SetSpec
from policy_net.set_policy.policy import SetPolicy

DEFAULT_SET_FILE = Path(__file__).with_name("default.safetensors")


@cache
def default_set_file() -> PolicyFile:
    """The file, read once.

    Raises:
        PolicyFileError: it is missing or damaged: the package was installed badly.
    """
    return read_policy_file(DEFAULT_SET_FILE)


def set_policy_of(content: PolicyFile, label: str) -> SetPolicy:
    """The policy of a file that holds a `set` policy, with beliefs that start from the file's priors.

    Raises:
        PolicyFileError: the file holds another kind.
    """
    return SetPolicy(set_spec_of(content, label), content.weights, content.priors, label=label)


def set_spec_of(content: PolicyFile, label: str) -> SetSpec:
    """The spec of a file that holds a `set` policy.

    Raises:
        PolicyFileError: the file holds another kind.
    """
    if not isinstance(content.spec, SetSpec):
        raise PolicyFileError(f"{label}: holds a {content.spec.policy!r} policy, not a set policy")
    return content.spec


def build_set(context: PolicyContext) -> SetPolicy:  # noqa: ARG001  (plans on its own beliefs, no truth)
    """Build the policy registered as `set`."""
    return set_policy_of(default_set_file(), "set")


def build_set_fresh(context: PolicyContext) -> SetPolicy:  # noqa: ARG001  (as `build_set`)
    """Build the policy registered as `set-fresh`: the same weights, but nothing known of any type's speed at first."""
    content = default_set_file()
    return SetPolicy(set_spec_of(content, "set"), content.weights, label="set-fresh")
