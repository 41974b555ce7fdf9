import sys
from pathlib import Path

# What the tests of this folder share lies beside them; with importlib import mode no folder is on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))
