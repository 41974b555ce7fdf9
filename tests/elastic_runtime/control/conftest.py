"""Lets this folder's tests import `certificates`, which the launcher's tests use too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "launcher"))
