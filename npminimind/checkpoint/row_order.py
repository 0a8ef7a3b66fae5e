"""RoPE on neighbours and on halves: the same scores, the rows of q_proj and k_proj in another order."""


def in_file_order(array, name, neighbours, head_dim):
    """The view of a parameter through which the file's rows are written: only old q and k differ."""
    turned = neighbours and name.endswith(("q_proj.weight", "k_proj.weight"))
    return by_neighbours(array, head_dim) if turned else array


def by_neighbours(matrix, head_dim):
    """A view of ``matrix [heads * D, H]`` in the row order of files with neighbour RoPE.

    Such files hold, in each head, the pair that is rotated by one angle in rows 2i and 2i + 1;
    rotating halves pairs rows i and i + D/2. Writing the file's rows through this view puts each
    where the half rotation wants it. Scores stay exactly the same: q and k are reordered alike.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = np.zeros((4, 1), int)
    >>> by_neighbours(matrix, head_dim=4)[...] = np.arange(4).reshape(1, 2, 2, 1)
    >>> matrix[:, 0]
    array([0, 2, 1, 3])
    """
    heads = len(matrix) // head_dim
    return matrix.reshape(heads, 2, head_dim // 2, -1).transpose(0, 2, 1, 3)
