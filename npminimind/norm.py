"""RMSNorm: the length of a vector divided out, the direction kept."""

import numpy as np

from .primitives import as_float


def rms_norm(x, weight, eps):
    """``weight * x / sqrt(mean(x²) + eps)`` over the last axis.

    Parameters
    ----------
    x : array [..., n]
    weight : array [n]
    eps : float
        Inside the root; 1e-6 in MiniMind-3, 1e-5 before.

    Returns
    -------
    array [..., n], dtype of x

    Raises
    ------
    ValueError
        If ``weight`` is not one number for each of the n features; a negative eps.

    Notes
    -----
    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization"; upstream ``RMSNorm``. Half
    precision is computed in float32 and rounded once at the end, after the weight. Differs from HF:
    Qwen3 rounds before it multiplies with the weight.

    Examples
    --------
    mean(x²) = (9 + 16) / 2 = 12.5, and 3 / sqrt(12.5) = 0.8485:

    >>> rms_norm(np.array([3.0, 4.0]), np.array([1.0, 10.0]), eps=0.0).round(4)
    array([ 0.8485, 11.3137])
    """
    x, weight = as_float(x), as_float(weight)
    if weight.ndim != 1 or x.shape[-1:] != weight.shape:
        raise ValueError(f"weight has shape {weight.shape}, x {x.shape}: need one weight for each feature")
    if not eps >= 0:
        raise ValueError(f"eps must be 0 or more, not {eps}")
    if x.dtype == np.float16:
        return rms_norm(x.astype(np.float32), weight, eps).astype(np.float16)
    mean_square = np.vecdot(x, x)[..., None] / len(weight)  # [..., n] -> [..., 1]
    normed = x / np.sqrt(mean_square + eps)
    normed *= weight
    return normed
