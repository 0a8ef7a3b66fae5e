"""What becomes of memory that arrays have left."""

import numpy as np


def keep_freed_memory():
    """Have arrays of up to 31 MiB made from memory that others have left, where malloc is glibc's.

    By itself it hands their pages back to the system, which clears each before it gives it out again. The size up
    to which it keeps them grows with what is freed (``M_MMAP_THRESHOLD`` in mallopt(3); 32 MiB is its end).
    """
    np.empty(31 * 2**20, np.uint8)  # freed at once, and never written
