"""What the machine itself can do: the best bandwidth of one-row products, the best rate of large products."""

import time

import numpy as np

ONE_ROW_SHAPES = ((6400, 768), (4864, 768), (2432, 768), (768, 2432))  # [out, in], as in MiniMind-3
TOGETHER = 256 * 2**20  # bytes of matrices that are read in turn: more than any cache holds
GEMM_SHAPES = ((512, 768, 2432), (512, 2432, 768), (512, 768, 6400), (1024, 1024, 1024))  # rows, in, out


def one_row_bandwidth(dtype, repeats):
    """Best bytes a second at which ``x @ w.T`` with one row reads matrices that no cache holds.

    Both memory layouts are tried.

    Returns
    -------
    float, bytes a second
    """
    best, rng = 0.0, np.random.default_rng(0)
    for out, n in ONE_ROW_SHAPES:
        x = rng.standard_normal((1, n), dtype=np.float32).astype(dtype)
        for order in "CF":
            one = np.ones((out, n), dtype)
            matrices = [np.array(one, order=order) for _ in range(max(2, TOGETHER // one.nbytes))]
            bytes_read = sum(w.nbytes for w in matrices)
            best = max(best, bytes_read / min(seconds(multiply, repeats, x, matrices)))
    return best


def gemm_rate(dtype, repeats):
    """Best floating-point operations a second of a large product. Returns float."""
    best, rng = 0.0, np.random.default_rng(0)
    for rows, n, out in GEMM_SHAPES:
        x = rng.standard_normal((rows, n), dtype=np.float32).astype(dtype)
        w = rng.standard_normal((out, n), dtype=np.float32).astype(dtype)
        best = max(best, 2 * rows * n * out / min(seconds(multiply, repeats, x, [w])))
    return best


def multiply(x, matrices):
    for w in matrices:
        x @ w.T


def seconds(function, repeats, *args):
    """Time of each of several calls, after one that does not count."""
    function(*args)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return times
