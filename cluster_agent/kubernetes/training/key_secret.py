"""Command `cluster-agent training-key`: the key from which tokens of TrainingJobs follow, from a Secret made once.

An installation cannot make it: whatever renders a chart anew, as GitOps does, cannot see the key in use, and under
another one the jobs that run are unknown. So the first agent that starts makes the Secret, and all read it before they
begin.
"""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from cluster_agent.errors import BadAgentConfig
from foundation.files import PRIVATE, write_whole
from foundation.pod_secrets import ACCOUNT, PodSecrets, check_names

_RANDOM_BYTES = 48


def training_key(
    secret: Annotated[str, typer.Option(help="The Secret's name, in this pod's namespace.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File that the key is written to.", show_default=False)],
    key: Annotated[str, typer.Option(help="Under which name the Secret holds it.")] = "key",
    account: Annotated[Path, typer.Option(help="Folder of the pod's service account.")] = ACCOUNT,
) -> None:
    """Write the key of TrainingJobs to a file, from a Secret that is made if it is not there."""
    check_names(secret, key)
    there = PodSecrets(account, os.environ)
    held = there.read(secret)
    if held is None:
        there.make(secret, {key: base64.b64encode(secrets.token_bytes(_RANDOM_BYTES))})
        held = there.read(secret)  # of agents that begin at once, all have the key of the first one
    if held is None or key not in held:
        has = ", ".join(sorted(held or ())) or "nothing"
        raise BadAgentConfig(
            f"secret {secret} in namespace {there.namespace}: has no {key}, but {has}; put the key of the jobs that "
            "run there, or delete the Secret if none does"
        )
    try:
        write_whole(out, held[key], mode=PRIVATE, durable=False)
    except OSError as error:
        raise BadAgentConfig(
            f"{out}: cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error
    print(f"{out}: the key of secret {secret}")
