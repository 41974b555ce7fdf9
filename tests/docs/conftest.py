"""Lets this folder's tests import `docs_pages`, and `browser`: in importlib mode no folder is on the path by itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "global_learner"))
