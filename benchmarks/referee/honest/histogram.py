"""Honest candidates of `histogram`; a bin is an eighth wide for 64 bins, so that products with 8 are exact."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np


def _bins(x, bins):
    place = np.floor(x * (bins / 8)) + bins // 2
    place[x == 4] = bins - 1  # the last bin has its upper end
    return place[(place >= 0) & (place < bins)].astype(np.int64)


def by_bincount(x, bins=64):
    """Bins computed, then counted."""
    return np.bincount(_bins(x, bins), minlength=bins)


def by_sort(x, bins=64):
    """Numbers in order, then the places of the bins' ends."""
    ends = np.linspace(-4, 4, bins + 1)
    ordered = np.sort(x)
    places = np.searchsorted(ordered, ends)
    places[-1] = np.searchsorted(ordered, 4, side="right")
    return np.diff(places)


def by_digitize(x, bins=64):
    """Places among the bins' ends."""
    places = np.digitize(x[(x >= -4) & (x <= 4)], np.linspace(-4, 4, bins + 1)[1:-1])
    return np.bincount(places, minlength=bins)


def by_edges(x, bins=64):
    """NumPy's own function with given ends."""
    return np.histogram(x, np.linspace(-4, 4, bins + 1))[0]


def in_float64(x, bins=64):
    """In float64."""
    return np.histogram(x.astype(np.float64), bins, (-4, 4))[0]


def in_chunks(x, bins=64):
    """Counts of parts, added."""
    return sum(np.histogram(part, bins, (-4, 4))[0] for part in np.array_split(x, 7))


def in_threads(x, bins=64):
    """Two threads, both joined before the return."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda part: by_bincount(part, bins), np.array_split(x, 2)))


def added_at(x, bins=64):
    """One added at each place."""
    counts = np.zeros(bins, np.int64)
    np.add.at(counts, _bins(x, bins), 1)
    return counts


def by_unique(x, bins=64):
    """Unique bins with their counts."""
    counts = np.zeros(bins, np.int64)
    places, found = np.unique(_bins(x, bins), return_counts=True)
    counts[places] = found
    return counts
