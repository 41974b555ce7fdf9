"""Names that keep the kinds of jobs of one type apart: speeds are known by type, and a type is of one kind.

A script that trained with parameter servers yesterday may train by all-reduce today, under the same name. Sizes that
train as one kind do not train as the other: believed as the first one's, the second's speed would be zero everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from policy_net.domain import JobKind
from policy_net.throughput.beliefs import Beliefs


def type_of_kind(
    job_type: str,
    kind: JobKind,
    kind_of: Callable[[str], JobKind | None],
    given: Callable[[], Collection[str]] = tuple,
) -> str:
    """The name under which jobs of this type and kind are known: the type's own, or one with the kind behind it.

    The longer one where the type's own is that of the other kind, or where only the longer one is known, and no user
    gave that. `kind_of` says of what kind a name is known to be, if it is; `given` are the names that users gave, asked
    for only where one could be meant.
    """
    name = job_type
    while (known := kind_of(name)) is None or known.uses_ps is not kind.uses_ps:
        apart = f"{name}-{kind.value}"
        if known is None and (kind_of(apart) is None or apart in given()):
            break
        name = apart
    return name


def measured_kinds(beliefs: Beliefs) -> Callable[[str], JobKind | None]:
    """Of what kind a name is known to be by what was measured of it so far: the `kind_of` of `type_of_kind`."""

    def kind_of(name: str) -> JobKind | None:
        belief = beliefs.beliefs_by_type().get(name)
        return None if belief is None else belief.form.kind

    return kind_of
