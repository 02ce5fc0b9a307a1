"""Types of the arrays that compiled loops read and write."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


Ints = NDArray[np.int64]


Words = NDArray[np.uint64]


Flags = NDArray[np.bool_]
