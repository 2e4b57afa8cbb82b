"""Remove labels that name the build, so that the series of both builds match."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from buildcompare.recordings.frames import STATUS
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import Note, Series
from buildcompare.results.codes import SIDES, Side


def without_build_labels(recordings: Mapping[Side, Sequence[Recording]]) -> Mapping[Side, Sequence[Recording]]:
    """Remove each label that both builds have, but without a common value, such as names of pods; status codes stay.

    Series with such labels would have no counterpart in the other build. Series of a run that differ only in such
    labels become one series: rates and users are added up, and other values are averaged.
    """
    values = {
        side: [pair for run in recordings[side] for each in run.graphs() for pair in each.labels.items()]
        for side in SIDES
    }
    names = {name for name, _ in values["base"]} & {name for name, _ in values["new"]}
    own = names - {*STATUS} - {name for name, _ in {*values["base"]} & {*values["new"]}}
    return {side: [_without(run, own) for run in recordings[side]] for side in SIDES} if own else recordings


def _without(run: Recording, own: set[str]) -> Recording:
    text = f"labels that name the build are left out: {', '.join(sorted(own))}"
    rest = [each for each in run.series if each.role != "graph"]
    return replace(run, series=(*_matched(run, own), *rest), notes=(*run.notes, Note("source", text)))


def _matched(run: Recording, own: set[str]) -> Iterator[Series]:
    """Yield the graphs of a run without the labels `own`; graphs that differed only in these labels become one."""
    graphs: dict[tuple[str, tuple[tuple[str, str], ...]], list[Series]] = {}
    for each in run.graphs():
        kept = tuple(sorted((name, value) for name, value in each.labels.items() if name not in own))
        graphs.setdefault((each.metric, kept), []).append(each)
    for (metric, kept), same in graphs.items():
        added = same[0].unit.endswith("/s") or same[0].unit == "users"
        total = same[0]
        if len(same) > 1 and added:
            total = replace(run, series=tuple(same)).total(metric) or total
        elif len(same) > 1:  # average the series that have a sample, at each timestamp
            mean = pd.concat([pd.Series(each.values, each.times) for each in same], axis=1).mean(axis=1).sort_index()
            total = replace(total, times=mean.index.to_numpy(dtype=float), values=mean.to_numpy())
        yield replace(total, labels=dict(kept))
