"""The small functions that everything else is made of: linear, softmax, silu, gelu."""

import math

import numpy as np

FEW_ROWS = 32  # measured up to here: w @ x.T is the faster way (CONTRIBUTING.md)
erfc = np.frompyfunc(math.erfc, 1, 1)  # one number at a time: NumPy has none of its own


def linear(x, weight):
    """``y = x wᵀ``, without a bias: MiniMind has none.

    Parameters
    ----------
    x : array [..., in]
    weight : array [out, in]
        As torch's ``nn.Linear`` stores it.

    Returns
    -------
    array [..., out], dtype of the inputs

    Examples
    --------
    >>> linear(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    array([[1., 2., 3.]])
    """
    # NumPy multiplies a stack of matrices one after the other; as rows of one matrix they are one product.
    x, weight = as_float(x), as_float(weight)
    rows = x.reshape(-1, x.shape[-1])  # [..., in] -> [rows, in]
    if 1 < len(rows) <= FEW_ROWS and weight.flags.c_contiguous:
        y = np.ascontiguousarray((weight @ rows.T).T)  # the same, the other way round: faster for a few rows
    else:
        y = rows @ weight.T
    return y.reshape(*x.shape[:-1], len(weight))  # [rows, out] -> [..., out]


def softmax(x, axis=-1):
    """``exp(x_i) / sum_j exp(x_j)``: non-negative, sums to one. −inf becomes exactly 0.

    Parameters
    ----------
    x : array, any shape; lists are fine
    axis : int

    Returns
    -------
    array like x. The greatest entry is subtracted first: the same value, and no overflow. A row that
    is −inf throughout is 0/0, so nan, as in torch.

    Examples
    --------
    Chapter 10.4, whose own table does not sum to one; these are the true values:

    >>> softmax([2.0, 1.0, 0.5]).round(4)
    array([0.6285, 0.2312, 0.1402])
    """
    x = as_float(x)
    e = x - x.max(axis=axis, keepdims=True)
    np.exp(e, out=e)
    e /= e.sum(axis=axis, keepdims=True)
    return e


def silu(x):
    """``x * sigmoid(x) = x / (1 + exp(-x))``, MiniMind's activation.

    Examples
    --------
    >>> silu(np.array([-1e30, 0.0, 1.0])).round(4)    # x -> -inf: 0, and no overflow warning
    array([-0.    ,  0.    ,  0.7311])
    """
    x = as_float(x)
    e = np.asarray(-x)
    with np.errstate(over="ignore"):  # exp(-x) = inf is right: x / inf = 0
        np.exp(e, out=e)
    e += 1
    return np.divide(x, e, out=e)


def gelu(x):
    """``x/2 * (1 + erf(x/√2))``: the exact GELU, as torch's default and HF's ``"gelu"``.

    Examples
    --------
    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    x = as_float(x)
    # 1 + erf(z) = erfc(-z), which keeps its digits where erf comes near -1.
    return x * 0.5 * np.asarray(erfc(-x / math.sqrt(2)), x.dtype)


def as_float(x):
    """An array of floats: lists become float64, float arrays stay what they are."""
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return x
    if x.dtype.kind not in "iub":  # complex numbers would lose a part, strings would be parsed
        raise TypeError(f"need real numbers, not an array of {x.dtype}")
    return x.astype(np.float64)
