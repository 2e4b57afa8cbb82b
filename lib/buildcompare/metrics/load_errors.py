"""How exactly is a sum of a fit's residuals known? Noise of minutes that follow each other, as it was before the fit.

A fit takes the slow part of the noise away with the curve, and the more so the more freely the curve bends. What is
left looks less correlated than the noise was, and the long-run variance of a sum that the fit drove towards zero is
estimated as next to nothing. So the memory of the noise is the one whose residuals, after this very fit, would be
as correlated as those at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildcompare.recordings.recording import FloatArray


@dataclass(frozen=True)
class Residuals:
    """What a weighted least-squares fit left.

    Attributes
    ----------
    values
        Shape (n,), in the metric's unit.
    usual
        Shape (n,): the size that the noise is in proportion to.
    run
        Shape (n,): which run each minute is of; minutes of a run stand together, in their order.
    matrix
        Shape (n, parameters): the design of the fit.
    """

    values: FloatArray
    usual: FloatArray
    run: FloatArray
    matrix: FloatArray


@dataclass(frozen=True)
class ResidualErrors:
    """Standard errors of sums of residuals: AR(1) noise, corrected for the fit.

    The noise over its usual size is taken as AR(1) within each run. Its coefficient and variance are those whose
    expected sums of squares and of products of neighbours, after the fit's projection, equal the observed ones (a
    method of moments: the autoregressive counterpart of dividing by the degrees of freedom that are left).
    A prewhitened HAC estimate of such sums (Andrews & Monahan 1992), which assumes no shape, is half the truth in every
    fourth fit and fifty times too large in some.
    """

    coefficients: tuple[float, ...] = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.97)
    """Between these the autoregression is interpolated; at one-minute steps, .97 is a memory of half an hour."""

    def __call__(self, weights: FloatArray, left: Residuals) -> FloatArray:
        """Of the sum with each row of `weights`, shape (k, n); the errors have shape (k,)."""
        size = np.maximum(left.usual, 1e-300)
        noise = left.values / size
        scaled = left.matrix / size[:, None]
        vectors, singular, _ = np.linalg.svd(scaled, full_matrices=False)
        fitted = vectors[:, singular > 1e-10 * singular[0]]
        runs = [np.flatnonzero(left.run == each) for each in np.unique(left.run)]
        next_to = np.concatenate([part[:-1] for part in runs])
        squares, products = float(noise @ noise), float(noise[next_to] @ noise[next_to + 1])
        if not squares > 0:
            return np.zeros(len(weights))
        expected = np.array([self._expected(phi, fitted, runs, next_to) for phi in self.coefficients])
        seen = np.maximum.accumulate(expected[:, 1] / expected[:, 0])
        phi = float(np.interp(products / squares, seen, self.coefficients))
        variance = squares / self._expected(phi, fitted, runs, next_to)[0]
        total = np.zeros(len(weights))
        for part in runs:
            sized = weights[:, part] * size[part]
            total += np.einsum("ki,ki->k", sized @ _correlation(phi, part.size), sized)
        return np.asarray(np.sqrt(np.maximum(variance * total, 0.0)), dtype=np.float64)

    def _expected(
        self, phi: float, fitted: FloatArray, runs: list[np.ndarray], next_to: np.ndarray
    ) -> tuple[float, float]:
        """Sum of squares, and of products of neighbours, that noise of unit variance leaves after the fit."""
        moved = np.vstack([_correlation(phi, part.size) @ fitted[part] for part in runs])
        inner = fitted.T @ moved
        here, there = fitted[next_to], fitted[next_to + 1]
        crossed = np.einsum("ij,ij->", here, moved[next_to + 1]) + np.einsum("ij,ij->", moved[next_to], there)
        squares = len(fitted) - float(np.trace(inner))
        products = phi * next_to.size - float(crossed) + float(np.einsum("ij,ij->", here @ inner, there))
        return max(squares, 1e-12), products


def _correlation(phi: float, size: int) -> FloatArray:
    """Of AR(1) noise, shape (size, size)."""
    each = np.arange(size)
    return np.asarray((phi**each)[np.abs(each[:, None] - each)], dtype=np.float64)
