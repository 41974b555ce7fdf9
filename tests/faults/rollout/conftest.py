import sys
from pathlib import Path

# Rollouts as other packages' tests live them: agents' processes, and fleets that make up what they found out.
for _folder in ("cluster_agent", "cluster_agent/rollout"):
    sys.path.insert(0, str(Path(__file__).parents[2] / _folder))
sys.path.insert(0, str(Path(__file__).parents[1] / "elastic"))
sys.path.insert(0, str(Path(__file__).parent))
