"""Names of other folders' helpers, so that the tests of what is deployed run by themselves too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "global_learner"))
