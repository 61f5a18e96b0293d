"""Worker processes import what they load: worker_cases.py, by its name."""

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parent)
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
