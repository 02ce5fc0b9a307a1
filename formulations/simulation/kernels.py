"""The loops of `one_batch`, compiled."""

import numpy as np

from formulations.compiled.numba_kernels import FLOATS, INT, INTS, compile_kernels, kernel
from formulations.simulation.one_batch import Loops, run_passes, write_passes

COMPILED = Loops(
    kernel(INTS, INTS, INT, INTS, INTS, INTS, INTS)(write_passes),
    kernel(INTS, INTS, INT, INTS, INTS, INTS, FLOATS, FLOATS, FLOATS)(run_passes),
    np.array,
    np.full,
)

compile_kernels()
