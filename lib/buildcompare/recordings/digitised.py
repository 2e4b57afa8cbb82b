"""Was a table of samples read off a plot? Counts that are no whole numbers say so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from buildcompare.recordings.recording import Note, Series

COUNTED = ("users", "goroutines")
"""Units of what can only be counted: servers export whole numbers of them."""
FEW_DIGITS = 7
"""Whoever reads a plot writes down a few digits; an average or a rate that was computed has sixteen."""
NOTE = Note(
    "digitised",
    "read off a plot, as its counts are no whole numbers: fast movements are smoothed, and where two lines cross one "
    "hides the other",
)


def digitised_note(series: Sequence[Series]) -> tuple[Note, ...]:
    """The note for a recording of `series` that was read off a plot; empty for any other."""
    counted = [np.asarray(each.values) for each in series if each.unit in COUNTED]
    values = [each[np.isfinite(each)] for each in counted]
    numbers = np.concatenate(values) if values else np.empty(0)
    moving = numbers[numbers != 0]
    if moving.size == 0:
        return ()
    fractions = np.mean(moving != np.rint(moving)) > 0.5
    return (NOTE,) if fractions and bool(np.mean(_few_digits(moving)) > 0.99) else ()


def _few_digits(values: np.ndarray) -> np.ndarray:
    """Whether each of `values` is written with at most `FEW_DIGITS` significant digits."""
    scale = 10.0 ** (FEW_DIGITS - 1 - np.floor(np.log10(np.abs(values))))
    scaled = values * scale
    return np.asarray(np.abs(scaled - np.rint(scaled)) < 1e-3)
