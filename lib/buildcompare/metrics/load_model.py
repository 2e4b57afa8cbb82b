"""What a metric is made of at some load: a smooth curve over the users, and the cost of users who just came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildcompare.recordings.recording import FloatArray


@dataclass(frozen=True)
class Minutes:
    """Minutes of all runs of both builds, each shape (n,): `side` is 0 for base and 1 for new, `run` counts runs."""

    users: FloatArray
    climb: FloatArray
    values: FloatArray
    side: FloatArray
    run: FloatArray

    def climb_near(self, loads: FloatArray, side: int, width: float = 0.1) -> FloatArray:
        """The mean climb of a build within this part of each of `loads`; of the nearest minute where there is none."""
        own = self.side == side
        apart = np.abs(self.users[own][None, :] - loads[:, None])
        near = apart <= width * loads[:, None]
        count = near.sum(axis=1)
        nearest = self.climb[own][np.argmin(apart, axis=1)]
        mean = near @ self.climb[own] / np.maximum(count, 1)
        return np.asarray(np.where(count > 0, mean, nearest), dtype=np.float64)


@dataclass(frozen=True)
class LoadModel:
    """Per build a natural cubic spline over the users, and for both together what a rate of new users adds.

    Attributes
    ----------
    top
        The load that others are stated in parts of.
    places
        Knots of the splines, as parts of `top`, in increasing order.
    """

    top: float
    places: FloatArray

    def design(self, users: FloatArray, climb: FloatArray, side: FloatArray) -> FloatArray:
        """One row per load, shape (n, 2 knots + 2); the last two columns are the cost of new users."""
        spline = natural_spline(users / self.top, self.places)
        added = np.column_stack([climb, climb * (self.top / users - 1.0)])
        return np.hstack([spline * (side == 0)[:, None], spline * (side == 1)[:, None], added])


def natural_spline(x: FloatArray, knots: FloatArray) -> FloatArray:
    """Basis of the natural cubic splines with these knots, shape (n, number of knots).

    Hastie, Tibshirani & Friedman (2009), The Elements of Statistical Learning, equations 5.4 and 5.5.
    """

    def cut(k: int) -> FloatArray:
        last = knots[-1]
        upper = np.maximum(x - last, 0.0) ** 3
        return np.asarray((np.maximum(x - knots[k], 0.0) ** 3 - upper) / (last - knots[k]))

    count = knots.size
    columns = [np.ones_like(x), x] + [cut(k) - cut(count - 2) for k in range(count - 2)]
    return np.column_stack(columns)
