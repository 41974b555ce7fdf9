import sys
from pathlib import Path

# The test API server, for what a learner's pod asks of one.
sys.path.insert(0, str(Path(__file__).parents[2] / "kube"))
