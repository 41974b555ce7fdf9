"""Start of a training: a policy file to go on from, or the name of a policy that ships.

A name that ships says the kind too, so that `--policy set-taught` and `--from set-taught` are enough. What cannot be
read is refused before anything is written or said of workloads: a refusal is one line.
"""

from __future__ import annotations

from pathlib import Path

from policy_net.errors import BadInput
from policy_net.policy import DEFAULT_POLICY


def kind_and_start(policy: str | None, start: Path | None, config: Path | None) -> tuple[str | None, Path | None]:
    """The kind of policy, and the file to go on from, where either may be the name of a policy that ships.

    Raises:
        BadInput: there is no such kind, or two things to go on from.
    """
    from policy_net.exchange.spec import SET  # noqa: PLC0415

    if policy == DEFAULT_POLICY:
        if start is not None and str(start) != policy:
            raise BadInput(f"--policy {policy}: --from {start} says already what to go on from; use --policy {SET}")
        return SET, Path(policy)
    if policy not in ("dl2", SET, None):
        raise BadInput(f"--policy {policy}: use dl2 or {SET}")
    by_start = policy is None and config is None and str(start) in (SET, DEFAULT_POLICY)
    return SET if by_start else policy, start


def check_start(start: Path | None, kind: str) -> None:
    """See that what to go on from can be read; it is read again where it is trained.

    Raises:
        BadInput: it is no policy file, or is damaged.
    """
    if start is None:
        return
    from policy_net.exchange.policy_file import read_policy_file  # noqa: PLC0415
    from policy_net.set_policy.policy import file_of  # noqa: PLC0415

    read_policy_file(start if kind == "dl2" else file_of(start))
