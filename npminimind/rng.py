"""Where the randomness of a draw comes from: a seed, a generator, given uniforms, or torch's own stream."""

import itertools
import numbers

import numpy as np

from .inputs import probabilities


class TorchGenerator:
    """Draws the tokens that ``torch.manual_seed(seed)`` and ``torch.multinomial(probs, 1)`` draw on a CPU.

    Torch does not invert the cumulative distribution. It divides every probability by its own
    exponentially distributed number and takes the greatest: an exponential race.

    Parameters
    ----------
    seed : int

    Notes
    -----
    Source: upstream's ``torch.multinomial``; the stream is MT19937, as in torch 2.7 and later. Equal tokens
    need (nearly) equal probabilities: an error of 1e-6 in these flips about one draw in a million.

    Examples
    --------
    ``torch.manual_seed(0); torch.multinomial(torch.tensor([[.1, .2, .3, .4]]), 1)`` is 2, and 2 again, then 3:

    >>> generator = TorchGenerator(0)
    >>> probs = np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)
    >>> [int(generator.multinomial(probs)[0]) for _ in range(4)]
    [2, 2, 3, 3]
    """

    def __init__(self, seed):
        if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
            raise TypeError(f"seed must be an int, not {seed!r}")
        self.words = np.random.RandomState(int(seed) & 0xFFFFFFFF)

    def exponential(self, shape):
        """Exponentially distributed float64 numbers in memory order; ``exponential_`` rounds them to its dtype."""
        words = self.words.randint(0, 2**32, size=(*shape, 2), dtype=np.uint32).astype(np.uint64)
        word = words[..., 0] << np.uint64(32) | words[..., 1]  # the first is the high half
        u = (word & np.uint64(2**53 - 1)) * 2.0**-53
        return -np.log1p(-u)

    def multinomial(self, probs):
        """One id a row.

        Parameters
        ----------
        probs : array [..., V]
            Masked ids (probability 0) use up randomness too.

        Returns
        -------
        int64 array [...]

        Raises
        ------
        ValueError
            Negative, nan or all-zero probabilities.
        """
        probs = probabilities(probs)
        race = self.exponential(probs.shape).astype(probs.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):  # an exponential of exactly 0 wins, as in torch
            return np.argmax(probs / race, axis=-1).astype(np.int64)


class Uniforms:
    """Hands out uniform numbers in [0, 1), B a step.

    Parameters
    ----------
    rng : None, int seed, numpy.random.Generator, or an iterable of floats
        None is unpredictable; a seed starts PCG64.
    """

    def __init__(self, rng):
        self.given = None
        if rng is None or isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
            rng = np.random.Generator(np.random.PCG64(None if rng is None else int(rng)))
        if isinstance(rng, np.random.Generator):
            self.generator = rng
        elif hasattr(rng, "__iter__") and not isinstance(rng, (str, bytes, dict)):
            self.given = iter(np.ravel(rng) if isinstance(rng, np.ndarray) else rng)
        else:
            raise TypeError(
                f"rng must be None, an int, a numpy Generator, a TorchGenerator or an iterable of numbers, not {rng!r}"
            )

    def take(self, count):
        """The next ``count`` uniforms, float64."""
        if self.given is None:
            return self.generator.random(count)
        u = np.array(list(itertools.islice(self.given, count)), np.float64)
        if u.ndim != 1:
            raise TypeError("rng must be a flat sequence of numbers: B for the first step, then B for the next")
        if len(u) < count:
            raise ValueError(f"the given uniforms have run out: a step needs {count}, one a row")
        if not np.all((u >= 0) & (u < 1)):
            raise ValueError(f"uniforms must lie in [0, 1), got {u[~((u >= 0) & (u < 1))][0]}")
        return u
