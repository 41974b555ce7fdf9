import sys
from pathlib import Path

# The sample policies lie beside their tests, the simulated machine beside its backend's; with importlib import mode no
# folder is on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster_agent" / "backends" / "local"))
# A test cluster of Kubernetes, and agents of it.
sys.path.insert(0, str(Path(__file__).parents[1] / "kube"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster_agent" / "kubernetes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster_agent" / "backends" / "kubernetes"))
