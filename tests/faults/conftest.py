import sys
from pathlib import Path

# Fault tests run the processes that other packages' tests know how to start.
sys.path.insert(0, str(Path(__file__).parents[1] / "global_learner"))
sys.path.insert(0, str(Path(__file__).parent))
