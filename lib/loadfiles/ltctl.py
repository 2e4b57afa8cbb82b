"""Read the files of mattermost-load-test-ng's ``ltctl report generate`` (JSON, often gzipped)."""

import re
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Instant
from buildcompare.config.yaml import checked
from buildcompare.recordings.files import Curve, InputFile, series_of
from buildcompare.recordings.formats import FileSource
from buildcompare.recordings.recording import LabelSummary, Recording

EXPECTED = "a report of `ltctl report generate` (JSON, may be gzipped)"


def _plain(value: object) -> object:
    """Refuse ``1_0``, blanks and ``true``, which pydantic reads as numbers."""
    if isinstance(value, bool) or not re.fullmatch(r"[!-^`-~]+", str(value)):
        raise ValueError("a number such as 12.5")
    return value


_Number = Annotated[float, BeforeValidator(_plain)]
_Table = dict[str, _Number] | None


class _Graph(BaseModel):
    name: str = Field(alias="Name")
    values: list[tuple[_Number, _Number]] | None = Field(None, alias="Values")


class _Report(BaseModel):
    start: Instant = Field(alias="StartTime")
    end: Instant = Field(alias="EndTime")
    avg_store: _Table = Field(alias="AvgStoreTimes")
    p99_store: _Table = Field(alias="P99StoreTimes")
    avg_api: _Table = Field(alias="AvgAPITimes")
    p99_api: _Table = Field(alias="P99APITimes")
    label: Any = Field("", alias="Label")
    graphs: list[_Graph] | None = Field(None, alias="Graphs")


def read_report(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read every graph and every label value, NaN included."""
    contents = file.json()
    for field in (field for field in _Report.model_fields.values() if field.is_required()):
        if not isinstance(contents, dict) or field.alias not in contents:
            raise file.fault(field.alias, EXPECTED, "no such key")
    report = checked(_Report, contents, file=file.path)
    if report.end <= report.start:
        raise file.fault("EndTime", f"a time after StartTime ({contents['StartTime']})", contents["EndTime"])
    curves = []
    for i, graph in enumerate(report.graphs or []):
        times, values = np.array(graph.values or [], dtype=np.float64).reshape(-1, 2).T
        back = np.flatnonzero(np.diff(times) <= 0)
        if back.size:
            before, after = times[back[0] : back[0] + 2]
            raise file.fault(f"Graphs[{i}].Values[{back[0] + 1}]", f"a time after {before}", str(after))
        curves.append(Curve(graph.name, times, values, {}, partial("Graphs[{}].Values[{}]".format, i)))
    return Recording(
        series=series_of(file, curves, catalogue),
        window=(report.start.timestamp(), report.end.timestamp()),
        stop_known=True,
        label_summaries=tuple(
            LabelSummary(group, label, stat, value)
            for group in ("store", "api")
            for stat in ("avg", "p99")
            for label, value in (getattr(report, f"{stat}_{group}") or {}).items()
        ),
        provenance={"kind": "ltctl", "label": str(report.label), "files": [file.provenance]},
    )


SOURCE = FileSource(EXPECTED, read_report, lambda contents: contents.lstrip()[:1] == b"{" and b'"Graphs"' in contents)
