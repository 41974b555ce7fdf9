import sys
from pathlib import Path

_TESTS = Path(__file__).parents[2]
# importlib mode leaves these folders out: for the test cluster, for ElasticTargets, and for TrainingJobs.
sys.path[:0] = [
    str(Path(__file__).parent),
    str(_TESTS / "kube"),
    str(_TESTS / "cluster_agent" / "kubernetes"),
    str(_TESTS / "cluster_agent" / "backends" / "kubernetes"),
    str(_TESTS / "cluster_agent" / "backends" / "kubernetes" / "training"),
]
