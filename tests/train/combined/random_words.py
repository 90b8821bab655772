"""The random words of a layer: Philox4x32-10 (Salmon et al., SC 2011) as src/number/random.h says.

Word i of a pass is word i % 4 of Philox(seed ^ FNV-1a of the layer's name, pass, i / 4), the passes numbered over the
whole run; values are counted in the order [images, rows, columns, channels].
"""

import numpy as np

LOW = np.uint64(0xFFFFFFFF)


def stream_of(name):
    """64-bit FNV-1a."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found


def philox(key, high, low):
    """Four words for each counter (high, low), low an array: [counters, 4]."""
    half = np.uint64(32)
    low = np.asarray(low, np.uint64)
    c0, c1 = low & LOW, low >> half
    c2, c3 = (np.full(low.shape, n, np.uint64) for n in (high % 2**32, high >> 32))
    k0, k1 = key % 2**32, key >> 32
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1 = second >> half ^ c1 ^ np.uint64(k0), second & LOW
        c2, c3 = first >> half ^ c3 ^ np.uint64(k1), first & LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], 1)


class RandomWords:
    def __init__(self, seed, name, number):
        """number: of the pass."""
        self.key, self.number = seed ^ stream_of(name), number

    def factors(self, count, rate):
        """What each of so many values is multiplied by: 0, or 1 / (1 - rate) where its number in [0, 1) is not below."""
        words = philox(self.key, self.number, np.arange((count + 3) // 4)).reshape(-1)[:count]
        numbers = (words >> np.uint64(8)).astype(np.float64) / 2**24
        rate = np.float32(rate)
        return np.where(numbers >= rate, np.float64(np.float32(1) / (np.float32(1) - rate)), 0.0)
