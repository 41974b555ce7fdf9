"""Settings of the learner's own certificate authority."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from policy_net.settings import Section

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9a-fA-F:]{2,39}")


class IdentitySettings(Section):
    """The learner's own certificate authority: clusters are enrolled by it, and everybody shows a certificate."""

    names: tuple[str, ...] = ()
    """DNS names and addresses that agents dial, for the learner's certificate; the host of `listen` unless set."""
    enroll_port: int | None = Field(7072, ge=0, le=65_535)
    """Port beside that of `listen` at which clusters trade tokens for certificates, since they have none yet. 0 takes a
    free one; null: nobody can enroll."""
    token_minutes: float = Field(60.0, gt=0.0, le=43_200.0)
    """How long an enrollment token is good: long enough to carry it to the cluster and start the agent."""
    certificate_days: float = Field(30.0, gt=0.0, le=825.0)
    """How long a cluster's certificate is good; agents renew after two thirds. An agent that was away for longer than
    the last third must be enrolled again."""
    ca_certificate_file: Path | None = None
    """The certificate of an authority of one's own (PEM); unless set, one is made under the state directory."""
    ca_key_file: Path | None = None
    """Its private key (PEM, no password); only its owner may read it."""

    @field_validator("names")
    @classmethod
    def _hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"{name!r} is no host: use DNS names and addresses, without a port")
        return names

    @model_validator(mode="after")
    def _whole(self) -> IdentitySettings:
        if (self.ca_certificate_file is None) is not (self.ca_key_file is None):
            raise ValueError("ca_certificate_file and ca_key_file belong together: set both, or none")
        return self
