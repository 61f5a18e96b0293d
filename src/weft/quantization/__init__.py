"""Quantization: networks that compute with integers of 8 or 4 bits.

prepare_qat trains with rounded numbers, calibrate finds ranges for a trained network, convert makes the integer one.
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.quantization.calibration import *  # noqa: F403
from weft.quantization.config import *  # noqa: F403
from weft.quantization.conversion import *  # noqa: F403
from weft.quantization.observers import *  # noqa: F403
from weft.quantization.reports import *  # noqa: F403
from weft.quantization.sensitivities import *  # noqa: F403
from weft.quantization.simulated import *  # noqa: F403

_add_hints(globals())
