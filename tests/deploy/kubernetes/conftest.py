import sys
from pathlib import Path

# With importlib import mode no folder is on the path by itself. The test API server, and a cluster on it, are others'.
_TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(_TESTS / "kube"))
sys.path.insert(0, str(_TESTS / "cluster_agent" / "backends" / "kubernetes"))
sys.path.insert(0, str(_TESTS / "cluster_agent" / "backends" / "kubernetes" / "training"))
sys.path.insert(0, str(_TESTS / "cluster_agent" / "kubernetes"))
sys.path.insert(0, str(_TESTS / "global_learner"))
sys.path.insert(0, str(Path(__file__).parent))
