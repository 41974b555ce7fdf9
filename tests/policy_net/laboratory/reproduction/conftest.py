import sys
from pathlib import Path

# Test modules share tiny trainings; with importlib import mode the folder is not on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))
