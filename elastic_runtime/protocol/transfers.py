"""What a change makes of the holders of blocks: who gets a block, from whom, and who has it no longer.

Source: DL2 §5 (blocks move from one PS to another). Deviation: a block may have two holders, of which one may stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_runtime.protocol.plan import Change, Plan


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a change makes of the holders of one block, from step `at` on.

    Attributes:
        coming: get the block.
        leaving: have it until then.
        staying: have it before and after.
    """

    block: int
    at: int
    coming: tuple[str, ...]
    leaving: tuple[str, ...]
    staying: tuple[str, ...]

    def source(self, target: str, lost: frozenset[str] = frozenset()) -> str:
        """Who sends the block to one that gets it; empty if all who had it are lost.

        Who leaves keeps its copy as it was at the flip, so is asked first; two who get the block ask different ones.
        """
        turn = self.coming.index(target) % max(len(self.leaving), 1)
        order = (*self.leaving[turn:], *self.leaving[:turn], *self.staying)
        return next((name for name in order if name not in lost), "")


def transfers(change: Change, before: Plan) -> list[Transfer]:
    """The blocks whose holders a change changes, stage by stage; a block whose holders swap their parts is not one.

    Args:
        change: whose.
        before: the plan that it changes, with all servers that it names, lost ones too.
    """
    found = []
    holders: dict[int, tuple[str, str]] = {}
    for offset, stage in enumerate(change.stages):
        for block in dict.fromkeys((*stage.moves, *stage.replicas)):
            owner, replica = holders.get(block) or (before.owners[block], before.replica(block))
            holders[block] = (stage.moves.get(block, owner), stage.replicas.get(block, replica))
            old, new = _named(owner, replica), _named(*holders[block])
            coming = tuple(name for name in new if name not in old)
            leaving = tuple(name for name in old if name not in new)
            staying = tuple(name for name in old if name in new)
            if coming or leaving:
                found.append(Transfer(block, change.clock + offset, coming, leaving, staying))
    return found


def _named(owner: str, replica: str) -> tuple[str, ...]:
    return (owner, replica) if replica else (owner,)
