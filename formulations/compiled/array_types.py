"""Types of the arrays that compiled loops read and write.

In a ``NamedTuple`` that kernels take (`numba_kernels.record`) the number is that of the dimensions, 1 without one.
Elsewhere it says nothing.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

Ints = Annotated[NDArray[np.int64], 1]
Ints2 = Annotated[NDArray[np.int64], 2]
Ints3 = Annotated[NDArray[np.int64], 3]
Shorts = Annotated[NDArray[np.int32], 1]
Shorts2 = Annotated[NDArray[np.int32], 2]
Shorts3 = Annotated[NDArray[np.int32], 3]
Floats = Annotated[NDArray[np.float64], 1]
Floats2 = Annotated[NDArray[np.float64], 2]
Floats3 = Annotated[NDArray[np.float64], 3]
Words = Annotated[NDArray[np.uint64], 1]
Words2 = Annotated[NDArray[np.uint64], 2]
Flags = Annotated[NDArray[np.bool_], 1]
