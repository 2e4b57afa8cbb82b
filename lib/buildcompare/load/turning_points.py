"""Where does a curve turn? Falls from a peak to a trough that are large enough to count."""

from __future__ import annotations

from dataclasses import dataclass

from buildcompare.recordings.recording import FloatArray


@dataclass(frozen=True)
class Fall:
    """A fall from a peak to the trough after it, elapsed seconds and the curve's unit.

    Attributes
    ----------
    rise_s, rise_from
        The trough before the peak (the first sample, for the first fall).
    """

    rise_s: float
    rise_from: float
    peak_s: float
    peak: float
    trough_s: float
    trough: float

    @property
    def depth(self) -> float:
        """From peak to trough."""
        return self.peak - self.trough


def falls(elapsed: FloatArray, values: FloatArray, least: float) -> list[Fall]:
    """Every fall of at least `least`, two falls parted by a rise of at least `least`.

    Parameters
    ----------
    elapsed, values
        Elapsed seconds and values, shape (n,), finite.
    """
    found: list[Fall] = []
    if not elapsed.size:
        return found
    times, curve = elapsed.tolist(), values.tolist()
    start = low = high = (times[0], curve[0])
    falling = False
    for now in zip(times, curve, strict=True):
        if falling:
            if now[1] < low[1]:
                low = now
            elif now[1] - low[1] >= least:
                found.append(Fall(*start, *high, *low))
                start, high, falling = low, now, False
        else:
            if now[1] > high[1]:
                high = now
            if high[1] - now[1] >= least:
                low, falling = now, True
    if falling:
        found.append(Fall(*start, *high, *low))
    return found
