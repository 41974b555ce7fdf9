"""Evidence of a rollout: what an agent tells of it, in fleet.proto's words."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from cluster_agent.rollout.block_tally import FinishedBlock
from cluster_agent.rollout.shadow_sums import ShadowSums
from policy_net.exchange.generated import fleet_pb2

MOST_BLOCKS = 64
"""Of one message; what is left comes with the next heartbeats."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the learner is to hear.

    Attributes:
        shadow: None where nothing is new.
    """

    rollout: int
    blocks: tuple[FinishedBlock, ...]
    shadow: ShadowSums | None


def evidence_request(cluster: str, incarnation: int, evidence: Evidence) -> fleet_pb2.ShareEvidenceRequest:
    """All that the learner does not hold yet, oldest first, up to a bound."""
    request = fleet_pb2.ShareEvidenceRequest(cluster=cluster, incarnation=incarnation, rollout=evidence.rollout)
    request.blocks.extend(block_message(block) for block in evidence.blocks[:MOST_BLOCKS])
    if evidence.shadow is not None:
        request.shadow.CopyFrom(evidence.shadow.message())
    return request


def block_message(block: FinishedBlock) -> fleet_pb2.SwitchbackBlock:
    """One block."""
    content = asdict(block)
    twin = content.pop("twin")
    del content["whole_jobs"]
    message = fleet_pb2.SwitchbackBlock(**content)
    if twin is not None:
        message.has_twin = True
        message.twin_priced, message.twin_incumbent, message.twin_candidate = twin
    return message
