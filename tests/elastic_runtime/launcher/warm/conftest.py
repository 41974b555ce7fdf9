"""Lets this folder's tests import `started_tasks`: in importlib mode the folder is not on the path by itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
