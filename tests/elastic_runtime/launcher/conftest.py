"""Lets this folder's tests import `job_makers`: in importlib mode the folder is not on the path by itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
