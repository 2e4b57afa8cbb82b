"""Label summaries of a run (times by API handler and database method), and series of each label's calls and times.

How often Mattermost calls a label is not published. Here the call rate is proportional to one over the typical time, so
that no label dominates an average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from buildcompare.recordings.recording import FloatArray, LabelSummary, Series
from loadsim.settings import RunSettings

# Typical average in milliseconds and standard deviation between runs of the log average: orders of magnitude as
# in the label tables of Mattermost performance-reports, v10.4; rare labels vary more. Names are Mattermost's.
_API = """
login 120 .03, createPost 32 .03, getPostsForChannel 9 .02, getPostThread 8 .03, getPost 4 .05, patchPost 35 .08,
viewChannel 12 .02, getChannelMembers 6 .04, getChannelStats 18 .03, getChannelsForTeamForUser 14 .03,
getChannelUnread 3 .02, createChannel 160 .15, createDirectChannel 115 .1, addChannelMember 130 .1, getTeam 2 .05,
getTeamsUnreadForUser 4 .03, getUser 2 .02, getUsersByIds 3 .02, getUserStatusesByIds 2 .02, autocompleteUsers 31 .06,
searchPostsInTeam 240 .15, getThreadsForUser 11 .04, getPreferences 3 .03, saveReaction 9 .05, uploadFileStream 60 .1
"""
_STORE = """
AuditStore.Save 2 .03, ChannelStore.Get 1.9 .03, ChannelStore.GetAllChannelMembersForUser 3 .03,
ChannelStore.GetByName 3 .05, ChannelStore.GetChannels 2.3 .03, ChannelStore.GetChannelUnread 2 .02,
ChannelStore.GetMember 1.4 .02, ChannelStore.GetMemberCount 15 .06, ChannelStore.GetMembers 3.1 .05,
ChannelStore.IncrementMentionCount 1.2 .05, ChannelStore.SaveMember 21 .08, ChannelStore.UpdateLastViewedAt 3.2 .02,
EmojiStore.GetByName 2 .08, FileInfoStore.GetForPost 2.2 .03, FileInfoStore.Save 3.4 .06, GroupStore.GetGroups 2.1 .08,
JobStore.GetAllByStatus 2 .1, PostStore.Get 4.1 .03, PostStore.GetEtag 1.8 .02, PostStore.GetPosts 3.3 .03,
PostStore.GetPostsSince 7.2 .06, PostStore.GetSingle 1.7 .03, PostStore.Save 7.4 .02,
PostStore.SearchPostsForUser 220 .15, PostStore.Update 9 .06,
PreferenceStore.GetAll 3 .04, PreferenceStore.Save 5.1 .04, ReactionStore.Save 4.2 .05,
RoleStore.GetByNames 1.6 .05, SessionStore.Get 2.7 .04, SessionStore.Save 5 .04, StatusStore.GetByIds 1.8 .02,
StatusStore.SaveOrUpdate 2.2 .02, TeamStore.GetMember 1.3 .05, TeamStore.GetTotalMemberCount 29 .1,
ThreadStore.GetThreadForUser 5.2 .06, ThreadStore.GetThreadsForUser 3.4 .05, UserStore.Get 1.3 .03,
UserStore.GetProfileByIds 2.4 .02, UserStore.GetUnreadCount 3.1 .05
"""
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the server's histograms (the Prometheus client's defaults)."""
LOG_SD = {"api": 0.75, "store": 0.85}
"""Spread of one label's times: standard deviation of their log."""
_ADDED_SD = 0.05
STEP_S = 60
"""Seconds between two points of a label's series, as in pulled recordings."""
SHARE_SD = 0.01
"""Run-to-run standard deviation of the log of a label's share of the calls: agents draw their actions from fixed
probabilities, so shares vary as the requests per second do (`measure.LEVEL_SD`)."""
STORE_CALLS_PER_REQUEST = 8.0
"""Database calls for each API request: the order of magnitude of published totals."""
_AVERAGES = {"api": "avg-api-times", "store": "avg-store-times"}


@dataclass(frozen=True)
class Traffic:
    """Factors on the calls and on the times of labels, by ``group/label``; ``group/*`` means every label of a group.

    A recording has series of labels only with it, so it is not part of `RunSettings`.
    """

    calls: tuple[tuple[str, float], ...] = ()
    times: tuple[tuple[str, float], ...] = ()

    def average_factor(self, group: str, settings: RunSettings) -> float:
        """True factor by which the changed traffic multiplies the average time over all calls."""
        typical = typical_seconds(settings)[group]
        calls = {label: _factor(self.calls, group, label) / s for label, s in typical.items()}
        spent = sum(calls[label] * s * _factor(self.times, group, label) for label, s in typical.items())
        return float(spent / sum(calls.values()) / _plain_average(settings, group))


def label_summaries(
    settings: RunSettings, run_factor: FloatArray, rng: np.random.Generator
) -> tuple[LabelSummary, ...]:
    """Average and p99 of each label over the run, in seconds.

    `run_factor` is the request-weighted factor of the whole run on API and on store times, shape (2,).
    """
    scale = settings.noise.level_scale
    rows = [
        (group, name, average_ms / 1000.0 * float(factor), sd)
        for group, table, factor in (("api", _API, run_factor[0]), ("store", _STORE, run_factor[1]))
        for name, average_ms, sd in _rows(table)
        if f"{group}/{name}" not in settings.labels.without
    ]
    rows += [(group, name, average_s, _ADDED_SD) for group, name, average_s in settings.labels.added]
    summaries = []
    for group, name, typical, sd in sorted(rows):
        average = typical * float(np.exp(rng.normal() * sd * scale))
        spread = LOG_SD[group] * float(np.exp(rng.normal() * 0.5 * sd * scale))
        summaries.append(LabelSummary(group, name, "avg", average))
        summaries.append(LabelSummary(group, name, "p99", histogram_p99(average, spread)))
    return tuple(summaries)


def add_traffic(
    settings: RunSettings,
    traffic: Traffic,
    graphs: tuple[Series, ...],
    summaries: tuple[LabelSummary, ...],
    rng: np.random.Generator,
    *,
    requests: FloatArray,
    time_factor: FloatArray,
    run_factor: FloatArray,
) -> tuple[tuple[Series, ...], tuple[LabelSummary, ...]]:
    """Add a series of calls and times of each label, and change the graphs of average times accordingly.

    Parameters
    ----------
    requests, time_factor
        Requests per second and factor on the server's times, at each second of the run, shape (n,).
    run_factor
        Request-weighted factor of the whole run on API and on store times, shape (2,); `summaries` include it.
    """
    changed = tuple(replace(row, value=row.value * _factor(traffic.times, row.group, row.label)) for row in summaries)
    shares, factors = {}, {}
    for (group, slug), level in zip(_AVERAGES.items(), run_factor, strict=True):
        shares[group] = _shares(settings, traffic, group, rng)
        averages = {row.label: row.value for row in changed if (row.group, row.stat) == (group, "avg")}
        spent = sum(share * averages[label] for label, share in shares[group].items())
        factors[slug] = spent / sum(shares[group].values()) / (_plain_average(settings, group) * float(level))
    graphs = tuple(replace(s, values=s.values * factors[s.metric]) if s.metric in factors else s for s in graphs)
    return graphs + tuple(_label_series(settings, changed, shares, requests, time_factor)), changed


def typical_seconds(settings: RunSettings) -> dict[str, dict[str, float]]:
    """Typical average time of each label of the build, in seconds, by group."""
    found: dict[str, dict[str, float]] = {}
    for group, table in (("api", _API), ("store", _STORE)):
        named = {name: average_ms / 1000.0 for name, average_ms, _ in _rows(table)}
        found[group] = {name: s for name, s in named.items() if f"{group}/{name}" not in settings.labels.without}
    for group, name, seconds in settings.labels.added:
        found[group][name] = seconds
    return found


def histogram_p99(average_s: float, log_sd: float) -> float:
    """Return ``histogram_quantile(0.99, ...)`` of log-normal times, in seconds: linear within a bucket, capped."""
    centre = math.log(average_s) - log_sd**2 / 2
    low, below = 0.0, 0.0
    for high in BUCKETS_S:
        share = 0.5 * (1.0 + math.erf((math.log(high) - centre) / (log_sd * math.sqrt(2.0))))
        if share >= 0.99:
            return low + (high - low) * (0.99 - below) / (share - below)
        low, below = high, share
    return BUCKETS_S[-1]


def _rows(table: str) -> list[tuple[str, float, float]]:
    rows = []
    for entry in table.replace("\n", " ").split(","):
        name, average_ms, sd = entry.split()
        rows.append((name, float(average_ms), float(sd)))
    return rows


def _factor(factors: tuple[tuple[str, float], ...], group: str, label: str) -> float:
    """Product of all factors that apply to this label."""
    found = [factor for name, factor in factors if name in (f"{group}/{label}", f"{group}/*")]
    return float(np.prod(found)) if found else 1.0


def _plain_average(settings: RunSettings, group: str) -> float:
    """Average time over all calls with unchanged traffic, in seconds."""
    typical = typical_seconds(settings)[group]
    return len(typical) / sum(1.0 / seconds for seconds in typical.values())


def _shares(settings: RunSettings, traffic: Traffic, group: str, rng: np.random.Generator) -> dict[str, float]:
    """Calls of each label as a fraction of all calls with unchanged traffic."""
    typical = typical_seconds(settings)[group]
    total = sum(1.0 / seconds for seconds in typical.values())
    drawn = np.exp(rng.normal(size=len(typical)) * SHARE_SD * settings.noise.level_scale)
    return {
        label: float(noise) / seconds / total * _factor(traffic.calls, group, label)
        for (label, seconds), noise in zip(typical.items(), drawn, strict=True)
    }


def _label_series(
    settings: RunSettings,
    summaries: tuple[LabelSummary, ...],
    shares: dict[str, dict[str, float]],
    requests: FloatArray,
    time_factor: FloatArray,
) -> list[Series]:
    count = requests.size // STEP_S
    served = requests[: count * STEP_S].reshape(count, STEP_S).mean(axis=1)
    shape = time_factor[: count * STEP_S].reshape(count, STEP_S).mean(axis=1)
    shape /= float(np.average(time_factor, weights=requests))
    times = settings.start + STEP_S * np.arange(1.0, count + 1.0)
    found = []
    for group, by_label in shares.items():
        for label, share in by_label.items():
            rate = served * share * (STORE_CALLS_PER_REQUEST if group == "store" else 1.0)
            found.append(Series(group, label, "calls/s", times, rate, role="label", stat="calls"))
    for row in summaries:
        values = row.value * shape if shares[row.group][row.label] > 0 else np.full(count, np.nan)
        found.append(Series(row.group, row.label, "seconds", times, values, role="label", stat=row.stat))
    return found
