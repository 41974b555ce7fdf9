import sys
from pathlib import Path

# With importlib import mode no folder is on the path by itself.
for folder in (Path(__file__).parent.parent, Path(__file__).parent.parent / "ranks"):
    sys.path.insert(0, str(folder))
