"""Lets this folder's tests import helpers of the launcher's and the coordinator's tests."""

import sys
from pathlib import Path

for folder in ("launcher", "coordinator"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
