"""Show an investigation as widgets: choices, the chart, and the answer."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import numpy as np
import pandas as pd
import traitlets

from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.reading import read_recordings
from buildcompare.config.errors import BuildcompareError
from buildcompare.config.params import read_params
from buildcompare.config.project import root
from buildcompare.figures import component, themes
from buildcompare.figures.chart import chart, group_of
from buildcompare.figures.curves import metric_at_load
from buildcompare.findings.subject import lab_command
from buildcompare.results import MetricResult, RunResult
from buildcompare.results.codes import SIDES
from buildcompare.text import numbers
from buildcompare.text.sentences import say
from investigation import drawings
from investigation.api import look_into
from investigation.measure import Investigation

HERE = Path(__file__).parent
MOST_ROWS = 12  # most rows of the table of other metrics
LOOK = """.buildcompare table { border-collapse: collapse; } .buildcompare svg { width: 100%; }
.buildcompare td, .buildcompare th { text-align: left; padding: 0.1em 1em 0.1em 0; }
.buildcompare caption { text-align: left; font-weight: 600; }"""
TICK = {True: "✓", False: "✗"}
WHOLE = ipywidgets.Layout(width="100%")
ROW = ipywidgets.Layout(flex_flow="row wrap")


class Chart(anywidget.AnyWidget):
    """The chart of one metric; it sends the zoomed range to the kernel.

    Attributes
    ----------
    chart
        Attributes from :func:`buildcompare.figures.chart.chart`; empty shows nothing.
    chosen
        ``axis`` (elapsed, ramp or users) and ``range`` on it (minutes or users; None is everything).
    """

    _esm = f"{component()}\n{(HERE / 'host.js').read_text('utf-8')}"
    style = traitlets.Unicode(f"{themes()}\n{LOOK}").tag(sync=True)
    chart = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Dict({"axis": "elapsed", "range": None}).tag(sync=True)


class Workbench(ipywidgets.VBox):  # type: ignore[misc]  # it ships no types
    """Widgets for one metric or label at a time.

    As the last line of a cell it shows them. Choose a comparison, a test, a metric or label; drag a window in the
    chart, or enter another margin: the numbers follow at once. The query runs against the server of the params file,
    and a note is kept there as a comment.

    Parameters
    ----------
    seen
        The first view, from :func:`buildcompare.investigate`.

    Attributes
    ----------
    seen
        The present view.
    """

    def __init__(self, seen: Investigation) -> None:
        self.seen = seen
        first = _shown_path(seen.analysis.params.file)
        self._compared = {first: seen.analysis}
        self._suggested, self._setting = "", False
        files = sorted(file.relative_to(root()).as_posix() for file in (root() / "params").glob("*.yaml"))
        self.comparison = _dropdown("Comparison", [first, *(file for file in files if file != first)])
        self.test, self.metric, self.label = (_dropdown(name) for name in ("Test", "Metric", "Label"))
        self.window = ipywidgets.FloatRangeSlider(
            description="Minutes", continuous_update=False, readout_format=".1f", step=0.1, layout=WHOLE
        )
        narrow = ipywidgets.Layout(width="12em")
        self.margin = ipywidgets.BoundedFloatText(description="Margin, %", min=0.1, max=1000.0, step=0.5, layout=narrow)
        self.steady = ipywidgets.Button(description="Steady windows", tooltip="Measure over each run's steady window")
        self.chart, self.at_load = Chart(), Chart()
        self.answer, self.measured, self.message = (ipywidgets.HTML() for _ in range(3))
        self.spread, self.why, self.events, self.moves, self.answered = (ipywidgets.HTML() for _ in range(5))
        self.beside, self.beginning, self.findings = (ipywidgets.HTML() for _ in range(3))
        self.query, self.comment = (ipywidgets.Textarea(layout=WHOLE, rows=3) for _ in range(2))
        self.ask = ipywidgets.Button(description="Ask the server")
        self.keep = ipywidgets.Button(description="Keep as comment")
        self.kept, self.link = ipywidgets.HTML(), ipywidgets.HTML()
        self._listen()
        choices = ipywidgets.HBox([self.comparison, self.test, self.metric, self.label], layout=ROW)
        window = ipywidgets.HBox([self.window, self.steady, self.margin])
        numbers = [self.answer, self.measured, self.link, self.findings, self.spread, self.why, self.beginning]
        others = ipywidgets.HBox([self.events, self.beside, self.moves], layout=ROW)
        asked = [ipywidgets.HTML("<b>PromQL</b>"), self.query, self.ask, self.answered]
        note = [ipywidgets.HTML("<b>Comment</b>"), self.comment, ipywidgets.HBox([self.keep, self.kept])]
        super().__init__([choices, self.message, self.chart, self.at_load, window, *numbers, others, *asked, *note])
        self.add_class("buildcompare")
        self._show(seen)
        if seen.moved:
            self._zoom(self.window.value)

    # ---- Actions of a reader ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        def on(widget: Any, trait: str, view_of: Callable[[Any], Investigation]) -> None:
            def changed(event: Any) -> None:
                if self._setting:
                    return
                with self._faults():
                    view = view_of(event["new"])
                    if _state(view) != _state(self.seen):  # else the event only echoes the present view
                        self._show(view)

            widget.observe(changed, trait)

        on(self.comparison, "value", self._opened)
        on(self.test, "value", lambda name: self.seen.choose(test=name))
        on(self.metric, "value", lambda slug: self.seen.choose(metric=slug) if slug else self.seen)
        on(self.label, "value", lambda name: self.seen.choose(label=name) if name else self.seen.choose())
        on(self.window, "value", self._slid)
        on(self.margin, "value", self._with_margin)
        on(self.chart, "chosen", self._zoomed)
        self.steady.on_click(lambda _: self._show(self.seen.over()))
        self.ask.on_click(self._ask)
        self.keep.on_click(self._keep)

    def _opened(self, file: str) -> Investigation:
        """Show another comparison, analysed at most once, at the same test and metric if it has them."""
        if file not in self._compared:
            params = read_params(root() / file)
            self._compared[file] = analyse(params, read_recordings(params))
        analysis = self._compared[file]
        tests = {each.name: each for each in analysis.results.tests}
        test = self.seen.test if self.seen.test in tests else next(iter(tests))
        slugs = [row.slug for row in tests[test].metrics]
        return look_into(analysis, test, self.seen.metric if self.seen.metric in slugs else None)

    def _slid(self, ends: Sequence[float]) -> Investigation:
        moved = self.seen.over([60.0 * each for each in ends])
        self._zoom(ends)
        return moved

    def _with_margin(self, percent: float) -> Investigation:
        """Judge by another margin, which holds until the comparison is read again."""
        judged = self.seen.with_margin(percent)
        self._compared[_shown_path(judged.analysis.params.file)] = judged.analysis
        return judged

    def _zoomed(self, chosen: Mapping[str, Any]) -> Investigation:
        """Measure over the zoomed range of the chart; a range of connected users is no window."""
        if chosen.get("range") is None:
            return self.seen.over()
        if chosen["axis"] == "users":
            return self.seen
        from_ramp = chosen["axis"] == "ramp"

        def window(run: RunResult) -> list[float]:
            start = (run.ramp_up.onset_s or 0.0) if from_ramp else 0.0
            return [min(max(60.0 * each + start, 0.0), run.duration_s) for each in chosen["range"]]

        base, new = (window(runs[0]) for runs in self.seen.view.result.runs)
        return self.seen.over(base=base, new=new)

    def _ask(self, _: object) -> None:
        self._say("")
        with self._faults():
            answer = self.seen.ask(self.query.value)
            words = say("investigation", "answered", answer["series"].nunique(), len(answer))
            picture = "" if answer.empty else drawings.image(drawings.lines(answer), words)
            self.answered.value = f"<p>{words}</p>{picture}"

    def _keep(self, _: object) -> None:
        with self._faults():
            number = self.seen.keep(self.comment.value)
            words = say("investigation", "kept", number, _shown_path(self.seen.analysis.params.file))
            self.kept.value = f'<span role="status">{html.escape(words)}</span>'

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Show an error as a message, and keep the present view."""
        try:
            yield
        except BuildcompareError as error:
            self._say(str(error), role="alert")

    def _say(self, text: str, role: str = "status") -> None:
        self.message.value = f'<p role="{role}">{html.escape(text)}</p>'

    # ---- Views ------------------------------------------------------------------------------------------------------

    def _show(self, seen: Investigation) -> None:
        before, self.seen = self.seen, seen
        self._setting = True
        self._say("")
        self.kept.value, self.link.value = "", _link(seen)
        try:
            if _state(before)[:-1] != _state(seen)[:-1] or not self.chart.chart:
                self._show_choice(seen)  # redrawn unless only the window changes
            self._show_windows(seen)
            caveat = f" {say('investigation', 'searched')}" if seen.moved else ""
            self.answer.value, self.measured.value = _answer(seen), f"<p>{html.escape(seen.measured + caveat)}</p>"
            self.spread.value = _spread(seen)
            self.why.value = _why(seen)
            self.events.value, self.beside.value = _events(seen), _beside(seen)
            self.moves.value = _moves(seen)
            if self.comment.value == self._suggested:  # the reader has not edited it
                self.comment.value = self._suggested = seen.comment
        finally:
            self._setting = False

    def _show_choice(self, seen: Investigation) -> None:
        tests = [each.name for each in seen.analysis.results.tests]
        metrics = [("–", ""), *((name, slug) for slug, name in seen.metrics.items())]
        labels = [("–", ""), *((name, name) for name in seen.label_names)]
        self.test.options, self.test.value = tests, seen.test
        self.metric.options, self.metric.value = metrics, seen.metric or ""
        self.label.options, self.label.value = labels, " ".join(seen.label or ())
        self.chart.chart, self.at_load.chart = _chart(seen), _at_load(seen)
        self.findings.value, self.beginning.value = _findings(seen), _beginning(seen)
        self.margin.value, self.margin.disabled = seen.margin_percent, not seen.has_margin
        self.query.value = seen.query or ""
        has_server = seen.analysis.params.source.kind == "prometheus"
        self.ask.disabled = not has_server
        self.answered.value = "" if has_server else say("investigation", "no_server")

    def _show_windows(self, seen: Investigation) -> None:
        """Move the slider to the windows, and zoom out for steady windows."""
        longest = max(run.duration_s for runs in seen.view.result.runs for run in runs) / 60.0
        spans = [run.steady.window for runs in seen.views for run in runs if run.steady.window]
        self.window.max = longest
        self.window.value = [each / 60.0 for each in spans[-1]] if spans else [0.0, longest]
        self.window.disabled = not seen.follows
        if not seen.moved:
            self._zoom(None)

    def _zoom(self, ends: Sequence[float] | None) -> None:
        """Zoom the chart to a range of minutes, or to everything, without measuring."""
        axis = self.chart.chosen["axis"] if ends is None else "elapsed"
        setting, self._setting = self._setting, True
        chosen: dict[str, object] = {"axis": axis, "range": None if ends is None else [*ends]}
        self.chart.set_trait("chosen", chosen)
        self._setting = setting


def _state(seen: Investigation) -> tuple[object, ...]:
    return id(seen.analysis), seen.test, seen.metric, seen.label, seen.windows


def _dropdown(name: str, options: Sequence[str] = ()) -> ipywidgets.Dropdown:
    return ipywidgets.Dropdown(description=name, options=options, layout=ipywidgets.Layout(width="22em"))


def _shown_path(file: Path | None) -> str:
    if file is None:
        return "–"
    return file.resolve().relative_to(root()).as_posix() if file.resolve().is_relative_to(root()) else str(file)


# ---- HTML of each part ----------------------------------------------------------------------------------------------


def _chart(seen: Investigation) -> dict[str, str]:
    """Return the chart of the metric, or of a label with samples over time."""
    if seen.samples.empty:
        return {}
    row = seen.row
    if not isinstance(row, MetricResult):  # the chart of a label needs these fields only
        fields: dict[str, Any] = {"name": seen.name, "slug": seen.slug, "unit": seen.unit, "labels": {}}
        row = MetricResult.model_construct(**fields)
    return chart(seen.view, row, seen.series, title=seen.name, alt=seen.measured)


def _at_load(seen: Investigation) -> dict[str, str]:
    """Return the chart over connected users of a metric that is compared at equal load."""
    row = seen.row
    if not isinstance(row, MetricResult) or row.labels or row.slug not in seen.view.at_load:
        return {}
    figure = metric_at_load("", seen.labels, row, seen.view.at_load[row.slug], group=group_of(seen.view))
    return figure.chart or {}


def _link(seen: Investigation) -> str:
    """Return the command that opens this view again; nothing without a params file."""
    if seen.analysis.params.file is None:
        return ""
    command = lab_command(_shown_path(seen.analysis.params.file), seen.test, seen.metric, seen.label, seen.windows)
    return f"<p>{say('investigation', 'again')} <code>{html.escape(command)}</code></p>"


def _spread(seen: Investigation) -> str:
    finite = seen.samples[seen.samples["inside"] & np.isfinite(seen.samples["value"].astype(float))]
    if finite.empty:
        return f"<p>{say('investigation', 'no_samples')}</p>"
    drawing = drawings.spread(finite, seen.autocorrelation, seen.unit)
    return drawings.image(drawing, say("investigation", "spread_alt", seen.name, seen.labels))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "", names: Sequence[str] = ()) -> str:
    """Return a table in HTML, empty without rows; `names` are CSS classes of its columns."""
    if not rows:
        return ""
    classes = [f' class="{name}"' for name in names] or [""] * len(head)
    heads = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in head)
    body = "".join(
        f"<tr>{''.join(f'<td{of}>{html.escape(each)}</td>' for of, each in zip(classes, row, strict=True))}</tr>"
        for row in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _answer(seen: Investigation) -> str:
    rows = []
    for over, row in zip(seen.answer.index, _records(seen.answer), strict=True):
        status = numbers.status_words(row["status"], seen.better, row["margin_percent"], row["ci_low"], row["ci_high"])
        name = (numbers.DECIDED_WORDS | {"supported_users": "supported users"}).get(str(over), seen.name)
        levels = [numbers.quantity(row[side], seen.unit) for side in SIDES]
        moved = [numbers.change(row["change_percent"]), numbers.interval(row["ci_low"], row["ci_high"]), status]
        rows.append([name, *levels, *moved, _effective(row["n_effective"]), numbers.percent(row["detectable_percent"])])
    heads = ["", *seen.labels, "Change", "95 % interval", "Status", "Effective samples", "Detectable"]
    return _table(heads, rows, names=["over", *SIDES, "change", "interval", "status", "effective", "detectable"])


def _why(seen: Investigation) -> str:
    claims = _records(seen.why)
    if not claims and seen.row.reason is not None:
        return f"<p>{html.escape(say('investigation', 'not_judged', seen.row.reason))}</p>"
    rows = [[row["claim"], _number(row["number"]), _number(row["limit"]), TICK[row["holds"]]] for row in claims]
    return _table(["Why this status", "is", "limit", ""], rows)


def _event(seen: Investigation, row: dict[Any, Any]) -> list[str]:
    return [seen.labels[row["build"]], row["kind"], numbers.minutes(row["at_s"]), numbers.change(row["size_percent"])]


def _events(seen: Investigation) -> str:
    rows = [[*_event(seen, row), TICK[row["matched"]]] for row in _records(seen.events)]
    return _table(["Build", "Event", "At", "Size", "In both"], rows or [[numbers.MISSING] * 5], caption="Events")


def _beside(seen: Investigation) -> str:
    events = _records(seen.events_beside.head(MOST_ROWS))
    rows = [[row["name"], *_event(seen, row), TICK[row["together"]]] for row in events]
    caption = "Events of other metrics in these windows"
    return _table(["", "Build", "Event", "At", "Size", "Together"], rows, caption=caption)


def _beginning(seen: Investigation) -> str:
    measures = [str(name).replace("_", " ") for name in seen.beginning.index]
    records = zip(measures, _records(seen.beginning), strict=True)
    rows = [[name, *(_number(row[column], 4) for column in seen.beginning)] for name, row in records]
    return _table(["", *seen.labels, "Difference", "from", "to"], rows, caption="How the load came up")


def _findings(seen: Investigation) -> str:
    lines = [
        f"<li>{html.escape(row['text'])} <small>{html.escape(row['detail'])}</small></li>"
        for row in _records(seen.findings)
    ]
    return f"<b>Findings of the report</b><ul>{''.join(lines)}</ul>" if lines else ""


def _moves(seen: Investigation) -> str:
    rows = [
        [row["name"], numbers.change(row["change_percent"]), numbers.status_words(row["status"])]
        + [_number(row[side], 2) for side in SIDES]
        for row in _records(seen.moves_with.head(MOST_ROWS))
    ]
    return _table(["", "Change", "Status", *seen.labels], rows, caption="What moves with it (correlation by minute)")


def _records(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows of a frame, with None for missing numbers."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _effective(samples: float | None) -> str:
    return numbers.MISSING if samples is None else numbers.whole(max(samples, 1.0))


def _number(value: float | None, digits: int = 3) -> str:
    return numbers.MISSING if value is None else numbers.significant(value, digits).replace("-", "−")
