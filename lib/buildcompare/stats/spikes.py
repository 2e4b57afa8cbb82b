"""Which short stretches of a series stand out from what is around them?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter

from buildcompare.recordings.recording import FloatArray

MAD_TO_SD = 1.4826
MEAN_TO_SD = 1.2533
"""Standard deviation of a normal variable in units of its median and mean absolute deviation."""


@dataclass(frozen=True)
class FindSpikes:
    """Samples far from the running median, in units of the usual distance from it.

    A running median follows a wandering level and a step, and does not see what is shorter than half of it: so a
    spike is judged by the noise of its surroundings, where a search for changes of the level, which must allow for
    the wandering, is blind to it. Spikes that touch an end of the series are left out: what never came back may be
    a new level.
    """

    half_width: int = 10
    """Samples of the running median on each side: what lasts longer than this is no spike."""
    threshold: float = 6.0
    """Of AR(1) series of 70 to 1080 samples, phi of 0 to 0.9, at most 2 % have a sample as far out as this; at phi
    0.95, 3 % (400 each, seed 20240502)."""
    flank: float = 0.5
    """Samples beside a spike belong to it down to this part of the threshold."""

    def __call__(self, values: FloatArray, *, resolution: float = 0.0) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of the spikes and drops of `values`, shape (n,), all finite."""
        if values.size <= 2 * self.half_width:
            return ()
        away = values - self.surroundings(values)
        scale = max(MAD_TO_SD * float(np.median(np.abs(away))), resolution / np.sqrt(12.0))
        if scale == 0.0:  # more than half of the samples at one value
            scale = MEAN_TO_SD * float(np.abs(away).mean())
        if scale <= 1e-9 * float(np.abs(values).max()):
            return ()
        found = []
        for sign in (1.0, -1.0):
            flanks = np.concatenate([[False], sign * away > self.flank * self.threshold * scale, [False]])
            edges = np.flatnonzero(np.diff(flanks.astype(np.int8)))
            for start, end in edges.reshape(-1, 2).tolist():
                inside = start > 0 and end < values.size
                if inside and end - start <= self.half_width and abs(away[start:end]).max() > self.threshold * scale:
                    found.append((start, end))
        return tuple(sorted(found))

    def surroundings(self, values: FloatArray) -> FloatArray:
        """The running median of `values`, shape (n,)."""
        return np.asarray(median_filter(values, 2 * self.half_width + 1, mode="nearest"), dtype=np.float64)
