"""Tables of the registry: versions, clusters with what they are assigned, rollouts, and the audit log of all."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Integer, LargeBinary, String, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from global_learner.storage.audit import AuditColumns


class RegistryTables(DeclarativeBase):
    """Root of the tables."""


class VersionRow(RegistryTables):
    """One published version.

    Attributes:
        kept: whether its policy file is there.
        pinned: whether an operator wants it kept.
        reset_base: whether the head was reset to it last, so that the next version descends from it.
        head_digest: of the head's file, which holds the moments; empty where none is kept.
        score: of `Scorer`; None until there is one.
        note: of an operator, with `text`, `actor` and `unix_seconds`.
        aliases: other names of it, in order; each is one version's.
        signed: a `SignedDocument` of fleet.proto; None if it is older than signatures.
    """

    __tablename__ = "versions"

    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    head_step: Mapped[int] = mapped_column(BigInteger, unique=True)
    parent: Mapped[int] = mapped_column(Integer)
    digest: Mapped[str] = mapped_column(String(64))
    spec_digest: Mapped[str] = mapped_column(String(64))
    spec_json: Mapped[str] = mapped_column(String)
    created_unix_seconds: Mapped[float] = mapped_column(Float)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    updates: Mapped[int] = mapped_column(BigInteger)
    contributions: Mapped[dict[str, int]] = mapped_column(JSON)
    staleness_p50: Mapped[float] = mapped_column(Float)
    kept: Mapped[bool] = mapped_column(default=True)
    pinned: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    reset_base: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict, server_default="{}")
    head_digest: Mapped[str] = mapped_column(String(64), default="", server_default="")
    head_size_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    score: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    signed: Mapped[bytes | None] = mapped_column(LargeBinary)
    note: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    aliases: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")


class ClusterRow(RegistryTables):
    """One cluster that ever registered.

    Attributes:
        held: whether an operator assigned its version.
        rollout: number of the running rollout that decides its version; 0: none does.
        rollout_assignment: `RolloutAssignment.to_json`.
        heard_unix_seconds: last heartbeat after its registration, to a minute; 0: none, or by an earlier program.
        acting_version: of that heartbeat; 0: none, or not known.
        finished: of that heartbeat: whether it has finished, and will not be heard again.
    """

    __tablename__ = "clusters"

    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    incarnation: Mapped[int] = mapped_column(BigInteger)
    assigned_version: Mapped[int] = mapped_column(ForeignKey("versions.version"))
    registered_unix_seconds: Mapped[float] = mapped_column(Float)
    job_types: Mapped[list[str]] = mapped_column(JSON)
    held: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    rollout: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    rollout_assignment: Mapped[dict[str, Any] | None] = mapped_column("duty", JSON(none_as_null=True))
    heard_unix_seconds: Mapped[float] = mapped_column(Float, default=0.0, server_default="0")
    acting_version: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    finished: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())


class ForgottenClusterRow(RegistryTables):
    """A cluster that was turned out and forgotten: no incarnation of it is ever given again."""

    __tablename__ = "forgotten_clusters"

    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    incarnation: Mapped[int] = mapped_column(BigInteger)


class RolloutRow(RegistryTables):
    """One rollout; all of it is written by `rollout.rollout_store`.

    Attributes:
        over: whether another one may begin.
        seed: of its clusters' coins.
        why: reason of the operator who began it.
        versions: that it may still need: the candidate, and those to which its clusters go back.
        state: `RolloutState` as JSON.
    """

    __tablename__ = "rollouts"

    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    candidate: Mapped[int] = mapped_column(Integer)
    phase: Mapped[str] = mapped_column(String(16))
    over: Mapped[bool] = mapped_column(Boolean)
    seed: Mapped[int] = mapped_column(BigInteger)
    actor: Mapped[str] = mapped_column(String(63))
    why: Mapped[str] = mapped_column(String)
    versions: Mapped[list[int]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String)


class RolloutEventRow(RegistryTables):
    """One event of a rollout, and what came of it; rows are only ever added. Number 0 is its begin."""

    __tablename__ = "rollout_events"

    rollout: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    unix_seconds: Mapped[float] = mapped_column(Float)
    actor: Mapped[str] = mapped_column(String(63))
    event: Mapped[str] = mapped_column(String)
    came_of_it: Mapped[list[str]] = mapped_column(JSON)


class RolloutBlockRow(RegistryTables):
    """One switchback block that a cluster brought; what was said first of it stands."""

    __tablename__ = "rollout_blocks"

    rollout: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    unix_seconds: Mapped[float] = mapped_column(Float)
    block: Mapped[dict[str, Any]] = mapped_column(JSON)


class RolloutShadowRow(RegistryTables):
    """What a cluster added up while it shadowed; takes the place of what it said before."""

    __tablename__ = "rollout_shadows"

    rollout: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    sums: Mapped[dict[str, Any]] = mapped_column(JSON)


class RolloutQueryRow(RegistryTables):
    """What a query's answers add up to in a stage of a rollout; `Standing` of `rollout.queries`."""

    __tablename__ = "rollout_queries"

    rollout: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    stage: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    query: Mapped[str] = mapped_column(String(63), primary_key=True)
    standing: Mapped[dict[str, Any]] = mapped_column(JSON)


class RolloutVerdictRow(RegistryTables):
    """One verdict, kept for people; rows are only ever added."""

    __tablename__ = "rollout_verdicts"

    rollout: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    verdict: Mapped[dict[str, Any]] = mapped_column(JSON)


class WorkloadSketchRow(RegistryTables):
    """What a cluster told of its work last; `WorkloadSketch.to_json`."""

    __tablename__ = "workload_sketches"

    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    unix_seconds: Mapped[float] = mapped_column(Float)
    sketch: Mapped[dict[str, Any]] = mapped_column(JSON)


class RolloutSketchRow(RegistryTables):
    """A cluster's sketch as a rollout's gate began with it, and what its replays came to.

    Attributes:
        seed: of its simulated work.
        jct_seconds: mean, by policy; None of one that lets jobs wait for ever.
        dropped: why it does not count; empty: it does.
    """

    __tablename__ = "rollout_sketches"

    rollout: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    cluster: Mapped[str] = mapped_column(String(63), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger)
    sketch: Mapped[dict[str, Any]] = mapped_column(JSON)
    jct_seconds: Mapped[dict[str, Any]] = mapped_column(JSON)
    dropped: Mapped[str] = mapped_column(String)


class VersionAuditRow(AuditColumns, RegistryTables):
    """What was done with versions, and to the head."""

    __tablename__ = "audit"
