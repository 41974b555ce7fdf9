"""Lets this folder's tests import its helpers, and those of the launcher's and the coordinator's tests."""

import sys
from pathlib import Path

for folder in ("launcher", "coordinator", "control"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
