"""The memory of a server's blocks, as the data plane knows it: a region for each segment and tensor."""

from __future__ import annotations

from elastic_runtime.errors import ElasticError
from elastic_runtime.model.layout import Kind, Layout
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.transport import Endpoint, Part, Region


class ServerRegions:
    """Addresses for the whole model, and memory for the blocks that the server ever owned.

    Args:
        task: the server's.
        endpoint: its data plane.
        layout: the model's.
        optimizer: of the job.
    """

    def __init__(self, task: str, endpoint: Endpoint, layout: Layout, optimizer: Optimizer) -> None:
        self._task = task
        self._layout = layout
        self._regions: dict[tuple[int, str], Region] = {}
        for segment in layout.segments:
            size_bytes = segment.elements * segment.element_bytes
            if not size_bytes:
                continue
            for name in ("parameters", *(optimizer.state_names if segment.kind is Kind.PARAMETER else ())):
                region = endpoint.region(f"{name}-{segment.index}", size_bytes, on_demand=True)
                self._regions[segment.index, name] = region

    @property
    def memory(self) -> dict[tuple[int, str], memoryview]:
        """All of it, by segment and tensor. Peers on this host read it in place: a block moves as fast as a push."""
        return {place: region.memory for place, region in self._regions.items()}

    def reserve(self, block: int) -> None:
        """Make sure that a block has memory.

        Raises:
            ElasticError: the machine has none left.
        """
        place = self._layout.blocks[block]
        element_bytes = self._layout.segments[place.segment].element_bytes
        regions = [region for (segment, _), region in self._regions.items() if segment == place.segment]
        try:
            for region in regions:
                region.reserve(place.start * element_bytes, place.stop * element_bytes)
        except OSError as error:
            raise ElasticError(f"{self._task}: no memory for block {block}: {error.strerror}") from error

    def part(self, name: str, segment: int, start: int, stop: int) -> Part:
        """Elements `start` to `stop` (exclusive) of a tensor of a segment, as they are sent."""
        element_bytes = self._layout.segments[segment].element_bytes
        return self._regions[segment, name].part(start * element_bytes, stop * element_bytes)
