"""A region's way to the learner above: it speaks the Fleet protocol there as one cluster (docs/decisions/0071)."""
