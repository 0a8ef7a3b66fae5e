"""The KV cache: keys (already rotated) and values of every token seen, layer by layer (chapter 10.3)."""

import numpy as np

GROWTH = 1.5  # a full buffer is replaced by one so much longer; pages never written cost no memory


class KVCache:
    """Buffers ``[B, capacity, K, D]`` for k and v of each layer, filled from the left.

    In memory the positions of one feature lie side by side (``[B, K, D, capacity]``, of which the buffer is
    a transposed view): that is the order in which a single query reads keys and values fastest.

    The model appends to it; everybody else sees ``past_key_values``, a list of ``(k, v)``. What has been
    handed out is never written again: appending writes behind it, and growing writes elsewhere.

    Parameters
    ----------
    config : MiniMindConfig
    batch : int
    capacity : int
        Positions to make room for; the buffers grow when there are more.
    dtype : numpy dtype
    past : list of (k, v) or None
        A cache to continue from; it is copied once.
    """

    def __init__(self, config, batch, capacity, dtype, past=None):
        self.length = 0
        room = (batch, capacity, config.num_key_value_heads, config.head_dim)
        self.layers = [(empty(room, dtype), empty(room, dtype)) for _ in range(config.num_hidden_layers)]
        if past is not None:
            for i, (k, v) in enumerate(past):
                self.append(i, k, v)
            self.length = np.shape(past[0][0])[1]

    def append(self, layer, k, v):
        """Write new tokens behind the old ones.

        Parameters
        ----------
        layer : int
        k, v : arrays [B, S, K, D]

        Returns
        -------
        k, v : views [B, T, K, D] of past and new tokens together
        """
        end = self.length + np.shape(k)[1]
        if end > self.layers[layer][0].shape[1]:
            self.layers[layer] = tuple(grown(buffer, self.length, end) for buffer in self.layers[layer])
        for buffer, new in zip(self.layers[layer], (k, v)):
            buffer[:, self.length : end] = np.ascontiguousarray(new)  # rows of a wider array transpose slowly
        return tuple(buffer[:, :end] for buffer in self.layers[layer])

    def replace(self, layer, k, v):
        """Go on with other arrays ``[B, T, K, D]`` (a tap's). What has been handed out stays as it was."""
        self.layers[layer] = (np.array(k), np.array(v))

    def advance(self, new_tokens):
        """All layers have appended: the next tokens go behind these."""
        self.length += new_tokens

    def past_key_values(self):
        """Read-only views ``(k, v)`` of what is cached, one pair a layer, each ``[B, length, K, D]``."""
        return [tuple(read_only(buffer[:, : self.length]) for buffer in layer) for layer in self.layers]


def empty(shape, dtype):
    """Room for ``[B, capacity, K, D]``, the positions contiguous in memory."""
    b, capacity, n_kv, d = shape
    return np.empty((b, n_kv, d, capacity), dtype).transpose(0, 3, 1, 2)


def grown(buffer, length, needed):
    """A longer buffer with the same first ``length`` positions."""
    b, capacity, n_kv, d = buffer.shape
    longer = empty((b, max(needed, int(capacity * GROWTH)), n_kv, d), buffer.dtype)
    longer[:, :length] = buffer[:, :length]
    return longer


def read_only(array):
    array.flags.writeable = False
    return array


def check_past(past, config, batch):
    """Refuse a cache that does not belong to this model or batch.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(past, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in past):
        raise TypeError("past_key_values must be a list of (k, v) pairs, one a layer")
    if len(past) != config.num_hidden_layers:
        raise ValueError(f"past_key_values has {len(past)} layers, the model {config.num_hidden_layers}")
    length = np.shape(past[0][0])[1] if np.ndim(past[0][0]) == 4 else "T"
    expected = (batch, length, config.num_key_value_heads, config.head_dim)
    for i, pair in enumerate(past):
        for name, array in zip("kv", pair):
            if np.shape(array) != expected:
                raise ValueError(
                    f"past_key_values: {name} of layer {i} has shape {np.shape(array)}, need {expected} [B, T, K, D]"
                )
            if np.asarray(array).dtype.kind != "f":
                raise TypeError(f"past_key_values: {name} of layer {i} must hold floats")
