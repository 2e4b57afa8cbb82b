"""Compare profiles of two builds: the share of samples in each frame, without and with the frames that it calls."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain

import numpy as np
from scipy import special

from buildcompare.profiles.stacks import Profile, Stack
from buildcompare.results import FrameResult, ProfilesResult
from buildcompare.results.codes import SIDES, Pair
from buildcompare.stats.effects import holm
from buildcompare.stats.planning import ALPHA, quantile

LEAST_PERCENT = 1.0
"""Minimum share in percent. Frames below it in both builds are omitted, because more tests lower the power."""
MOST_FRAMES, MOST_FRAMES_COMPARED = 20, 500  # maximum number of frames in a table, and of compared frames
NESTED = 0.9
"""`total` omits a frame if the change of one of its callees is at least this fraction of the frame's change."""
OWN_PART = 0.5
"""Weight of a frame's observed variance between runs; the variance from a model of all frames has the remaining weight.
Chosen among 0.25, 0.5 and 0.75 by ``benchmarks/profiles.py`` on random seeds below 250."""

Shares = dict[str, float]


def compare_profiles(profiles: Pair[list[Profile]]) -> ProfilesResult:
    """Compare the shares of all frames between profiles of two builds.

    Parameters
    ----------
    profiles
        At least one profile of each build.

    Returns
    -------
    ProfilesResult
        The frames that changed most, by themselves and with their callees. If a build has several profiles, each row
        also has a p-value, adjusted over all frames (Holm), and the 95 % limit of differences between unchanged builds
        (`noise_points`). The limit follows from the spread between profiles of one build and the counting error.

    Examples
    --------
    >>> base = Profile({("main", "parse"): 60.0, ("main", "send"): 40.0}, 100)
    >>> new = Profile({("main", "parse"): 80.0, ("main", "send"): 20.0}, 100)
    >>> round(compare_profiles(Pair([base], [new])).own[0].points, 6)
    20.0
    """
    rows = {own: _rows(profiles, own=own)[:MOST_FRAMES_COMPARED] for own in (True, False)}
    grown = {row.frame: row.points for row in rows[False]}
    below = _callees(chain.from_iterable(profile.stacks for profile in chain(*profiles)), grown.keys())
    with_calls = [
        row
        for row in rows[False]
        if not any(row.points and grown[each] / row.points >= NESTED for each in below[row.frame])
    ]
    return ProfilesResult(
        runs=profiles.map(len),
        samples=profiles.map(lambda each: math.fsum(profile.samples for profile in each)),
        own=rows[True][:MOST_FRAMES],
        total=with_calls[:MOST_FRAMES],
    )


def mean_stacks(profiles: Sequence[Profile]) -> dict[Stack, float]:
    """Average the shares (0 to 1) of all stacks over the profiles of one build."""
    shares: dict[Stack, float] = defaultdict(float)
    for profile in profiles:
        part = 1.0 / profile.weight / len(profiles)
        for stack, weight in profile.stacks.items():
            shares[stack] += weight * part
    return dict(shares)


def frame_shares(profile: Profile, *, own: bool) -> Shares:
    """Map each frame to the share (0 to 1) of samples whose stack ends in the frame (`own`), or contains it."""
    shares: Shares = defaultdict(float)
    whole = profile.weight
    for stack, weight in profile.stacks.items():
        for frame in stack[-1:] if own else set(stack):
            shares[frame] += weight / whole
    return dict(shares)


def _rows(profiles: Pair[list[Profile]], *, own: bool) -> list[FrameResult]:
    """Make a row for each frame whose share in a build is at least `LEAST_PERCENT`, the largest change first."""
    shares = profiles.map(lambda each: [frame_shares(profile, own=own) for profile in each])
    frames = sorted({frame for profile in chain(*shares) for frame in profile})
    if not frames:
        return []
    table = shares.map(lambda each: np.array([[profile.get(frame, 0.0) for frame in frames] for profile in each]))
    means = table.map(lambda each: each.mean(axis=0))
    kept = np.flatnonzero(np.maximum(means.base, means.new) >= LEAST_PERCENT / 100.0)
    points = 100.0 * (means.new - means.base)
    rows = [
        FrameResult(
            frame=frames[i],
            base_percent=100.0 * means.base[i],
            new_percent=100.0 * means.new[i],
            points=points[i],
            noise_points=bound,
            noise_share=None if bound is None or not points[i] else min(1.0, bound / abs(points[i])),
            p_adjusted=p_value,
        )
        for i, bound, p_value in zip(kept, *_noise(profiles, table, kept), strict=True)
    ]
    return sorted(rows, key=lambda row: (-abs(row.points), row.frame))


def _noise(
    profiles: Pair[list[Profile]], table: Pair[np.ndarray], kept: np.ndarray
) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """Return for each frame the difference (points) that 5 % of pairs of equal builds exceed, and the adjusted p-value.

    All items of both lists are None if neither build has several profiles. A share p in n samples has the
    variance p (1 - p) / n. Differences between runs add (p (1 - p))^2 times a factor common to all frames. The observed
    variance of a frame is averaged with this model (`OWN_PART`; Smyth 2004, Statistical Applications in Genetics and
    Molecular Biology 3).
    """
    df = float(sum(len(each) - 1 for each in profiles))
    if not df or not kept.size:
        return [None] * kept.size, [None] * kept.size
    groups = [table[side][:, kept] for side in SIDES]
    shares = np.clip(np.concatenate(groups).mean(axis=0), 0.0, 1.0)  # rounding errors may exceed this range
    scale = shares * (1.0 - shares)
    sizes = profiles.map(lambda each: np.array([profile.samples for profile in each]))
    counted = scale * float(np.mean(1.0 / np.concatenate([*sizes])))
    own = sum(((group - group.mean(axis=0)) ** 2).sum(axis=0) for group in groups) / df
    beyond = max(float((own - counted).sum() / max((scale**2).sum(), 1e-12)), 0.0)
    variance = np.maximum(OWN_PART * own + (1.0 - OWN_PART) * (counted + beyond * scale**2), counted)
    df /= OWN_PART
    sd = np.sqrt(variance * sum(1.0 / len(each) for each in profiles))
    differences = groups[1].mean(axis=0) - groups[0].mean(axis=0)
    p_values = np.where(sd > 0, 2.0 * special.stdtr(df, -np.abs(differences) / np.where(sd > 0, sd, 1.0)), 1.0)
    return (100.0 * quantile(1.0 - ALPHA / 2.0, df) * sd).tolist(), holm(p_values.tolist()).tolist()


def _callees(stacks: Iterable[Stack], frames: Set[str]) -> Mapping[str, set[str]]:
    """Map each frame to its direct and indirect callees in any stack, except callees that also call the frame."""
    places = {frame: i for i, frame in enumerate(frames)}
    below = [0] * len(places)  # sets of frames as bit masks, which are fast for deep stacks
    for stack in stacks:
        deeper = 0
        for place in (places[frame] for frame in reversed(stack) if frame in places):
            below[place] |= deeper
            deeper |= 1 << place
    return {
        frame: {each for each, j in places.items() if below[i] >> j & 1 and not below[j] >> i & 1}
        for frame, i in places.items()
    }
