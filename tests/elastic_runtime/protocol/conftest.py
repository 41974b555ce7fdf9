"""The world that the tests of the protocol run in is a module beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
