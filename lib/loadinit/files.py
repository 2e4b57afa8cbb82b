"""Write a params file and a catalogue for builds that nobody has described, and say what was recognised in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.reading import Builds, build_names, with_catalogue
from buildcompare.config.assumed import with_times
from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.errors import InputError, plural
from buildcompare.config.outside import one_line
from buildcompare.config.params import FILE_KEYS, SLUG, Comparison, check_params
from buildcompare.config.project import resolve, root, write_files, writing
from buildcompare.config.remote import is_remote
from buildcompare.config.yaml import yaml_text
from buildcompare.recordings.files import formats
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import ENDING, read_runs
from buildcompare.results import RunResult
from buildcompare.results.codes import SIDES, Side
from buildcompare.text.sentences import say

if TYPE_CHECKING:
    from jinja2 import Template

MOST_LABELS = 12
"""Most endpoints that are printed by name."""
MOST_UNUSED = 15
"""Most unused names that are printed; the params file lists all."""


class Draft(NamedTuple):
    """Params and catalogue of two builds, before they are written."""

    params: Comparison
    """Its `metrics` are filled in when the catalogue is written."""
    catalogue: Catalogue
    runs: Mapping[Side, Sequence[tuple[Mapping[str, object], str]]]
    """The keys of each run in the params file, and a comment."""
    said: Sequence[str]
    """Lines to print for the user."""
    unused: Sequence[str] = ()
    remarks: Mapping[str, str] = {}
    """Slug of a metric -> comment."""


def draft_of_files(base: str, new: str) -> Draft:
    """Recognise two files or folders of recordings, as `compare` reads them.

    Raises
    ------
    InputError
        If one cannot be read, or its files are the parts of one run, which a params file cannot name.
    """
    paths: dict[Side, str] = {"base": base, "new": new}
    runs, catalogue, recognised = with_catalogue(
        lambda by: {side: read_runs(path, by) for side, path in paths.items()}, None, {}
    )
    every = [run for side in SIDES for run in runs[side]]
    assumed = {each.slug for each in catalogue.metrics if not each.known}
    catalogue = with_times(catalogue, ((each.name, each.unit) for run in every for each in run.measurements))
    base_name, new_name = build_names((None, None), [[base], [new]], runs)
    timed = any(run.series for run in every)
    kind = "bounded" if timed else "benchmark"
    keys = {side: [_keys_of(run, paths[side]) for run in runs[side]] for side in SIDES}
    first = next(iter(keys["base"][0]))
    source = next((name for name, key in FILE_KEYS.items() if key == first), "values")
    params = check_params(
        {
            "base": {"label": base_name},
            "new": {"label": new_name},
            "source": {"kind": source},
            "tests": [{"name": kind, "type": kind, **keys}],
        }
    )
    recorded = {each.metric for run in every for each in run.graphs() if np.isfinite(each.values).any()}
    recorded |= {each.metric for run in every for each in run.measurements}
    remarks = {
        each.slug: say("init", "remark", each.slug in assumed, each.slug in recorded) for each in catalogue.metrics
    }
    unused = [*dict.fromkeys(text for side in SIDES for text in _unused(paths[side], runs[side]))]
    said = [
        *(_about(side, paths[side], runs[side]) for side in SIDES),
        say("init", "metrics", recognised, bool(assumed & recorded)),
        *(say("init", "metric", each, remarks[each.slug]) for each in catalogue.metrics if each.slug in recorded),
    ]
    about = {side: [""] * len(runs[side]) for side in SIDES}
    if timed:
        about, load = _windows(params, runs, catalogue)
        said += [load, *(say("init", "windows", side, about[side]) for side in SIDES)]
    said += _labels(every)
    with_about = {side: [*zip(keys[side], about[side], strict=True)] for side in SIDES}
    return Draft(params, catalogue, with_about, said, unused, {slug: text for slug, text in remarks.items() if text})


def _keys_of(run: Recording, path: str) -> dict[str, object]:
    """Name the file of a run, and its table of labels, as a params file does."""
    files = [str(each["path"]) for each in run.provenance["files"]]
    names = [Path(file).name for file in files]
    parts = _parts(names)
    main = [file for file, name in zip(files, names, strict=True) if ".labels." not in name and name not in parts]
    if len(main) != 1:
        expected = "one file for each run (join them to one table, or use `compare`)"
        found = f"{plural(len(main), 'file')} that are parts of one run"
        raise InputError(file=path, key=None, expected=expected, found=found)
    key = FILE_KEYS.get(str(run.provenance["kind"]), "recording" if run.series else "values")
    labels = next((each for each in files if ".labels." in Path(each).name), None)
    return {key: _stated(main[0]), **({"labels": _stated(labels)} if labels else {})}


def _parts(names: Collection[str]) -> set[str]:
    """Return the names of files that belong to another of these."""
    return set().union(*(form.parts(names) for form in formats()))


def _stated(path: str) -> str:
    """Write a path as params files do: relative to the project's root if it lies there."""
    if is_remote(path):
        return path
    absolute = resolve(path).absolute()
    return str(absolute.relative_to(root()) if absolute.is_relative_to(root()) else absolute)


def _about(side: Side, path: str, runs: Sequence[Recording]) -> str:
    kinds = sorted({str(run.provenance["kind"]) for run in runs})
    return say("init", "build", path, side, kinds, [run.duration_s for run in runs])


def _unused(path: str, runs: Sequence[Recording]) -> Iterator[str]:
    """Name the files of a folder that were not read, and the columns without a number."""
    place = Path(path)
    if not is_remote(path) and place.is_dir():
        read = {Path(str(each["path"])).name for run in runs for each in run.provenance["files"]}
        there = sorted(place.iterdir())
        read |= _parts([each.name for each in there])
        for each in there:
            if each.name not in read:
                fits = "beside" if ENDING.search(each.name) else "ending"
                why = "folder" if each.is_dir() else "hidden" if each.name.startswith(".") else fits
                yield say("init", "unused", place / each.name, say("init", "why", why))
    graphs = [each for run in runs for each in run.graphs()]
    numbers = {each.name for each in graphs if np.isfinite(each.values).any()}
    for name in dict.fromkeys(each.name for each in graphs if each.name not in numbers):
        yield say("init", "unused", name, say("init", "why", "empty"))


def _windows(params: Comparison, runs: Builds, catalogue: Catalogue) -> tuple[dict[Side, list[str]], str]:
    """Say which part of each run is steady, and which metric is the load."""
    (test,) = analyse(params, {params.tests[0].name: runs}, catalogue=catalogue).results.tests

    def words(run: RunResult) -> str:
        reason = run.window_reason and say("reasons", "reason_words", run.window_reason)
        return say("init", "run", run.window, reason)

    first = test.runs.base[0].load_curve
    curve = runs["base"][0].total(first) if first else None
    most = "" if curve is None else f"{np.nanmax(curve.values):,.4g}"
    load = say("init", "load", curve and curve.name, most, curve and curve.unit)
    return {side: [words(run) for run in test.runs[side]] for side in SIDES}, load


def _labels(runs: Sequence[Recording]) -> Iterator[str]:
    groups: dict[str, dict[str, None]] = {}
    for run in runs:
        series = ((each.metric, each.name) for each in run.series if each.role == "label")
        for group, label in (*series, *((each.group, each.label) for each in run.label_summaries)):
            groups.setdefault(group, {})[label] = None
    for group, names in groups.items():
        yield say("init", "labels", group, sorted(names), MOST_LABELS)


# ---- The two files ---------------------------------------------------------------------------------------------------


def write_draft(draft: Draft, output: Path | None, *, command: str, force: bool) -> list[str]:
    """Write a params file and its catalogue, both or neither; return lines that say so.

    Parameters
    ----------
    draft
        What was recognised.
    output
        The params file; by default ``params/NAME.yaml`` of the project, after the new build.
    command
        The command that wrote them, for a comment.
    force
        Whether files that exist are overwritten.

    Raises
    ------
    InputError
        If a file exists, or the name of `output` is no name of a params file.
    """
    default = re.sub(r"[^A-Za-z0-9._-]+", "-", draft.params.new.label).strip(".-")[:80] or "comparison"
    file = output or Path("params", f"{default}.yaml")
    if not re.fullmatch(SLUG, file.stem) or file.suffix not in (".yaml", ".yml"):
        raise InputError(file=None, key="--output", expected="a file such as params/NAME.yaml", found=repr(file.name))
    place = file if output or root() == Path.cwd() else root() / file
    beside = place.parent / "metrics" / f"{file.stem}.yaml"
    is_listed = beside.absolute() == root() / "params/metrics" / beside.name
    for each in (place, beside):
        if each.exists() and not force:
            expected, found = "no file, or --force to overwrite it", f"one of {each.stat().st_size:,} bytes"
            raise InputError(file=each, key=None, expected=expected, found=found)
    params = draft.params.model_copy(update={"metrics": file.stem if is_listed else _stated(str(beside.absolute()))})
    catalogue = draft.catalogue.model_dump(mode="json", exclude_defaults=True)
    catalogue["metrics"] = [_stated_metric(each) for each in draft.catalogue.metrics]
    source = params.source.model_dump(mode="json", exclude_defaults=True)
    shown = draft._asdict() | {"params": params, "catalogue": catalogue, "source": source}
    made = [_template(name).render(**shown, file=place, command=command) for name in ("params", "catalogue")]
    with writing(place, "--output", "a file that can be written"):
        write_files(dict(zip((place, beside), made, strict=True)))
    unused = [f"  {each}" for each in draft.unused[:MOST_UNUSED]]
    if draft.unused:
        unused = [say("init", "not_used", len(draft.unused), MOST_UNUSED, place), *unused]
    return [*unused, say("init", "written", place, beside)]


def _stated_metric(metric: Metric) -> dict[str, object]:
    """The keys of a metric in a catalogue: what differs from the defaults, and what a reader may want to change."""
    changed = metric.model_dump(mode="json", exclude_defaults=True, exclude={"known"})
    shown = {"better": str(metric.better), "margin_percent": metric.margin_percent, **changed}
    return {key: shown[key] for key in type(metric).model_fields if key in shown}


def _template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # late: not every command needs it

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=False,  # noqa: S701  # YAML, whose values `flow` quotes
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(flow=_flow, entry=_entry, line=one_line)
    return made.get_template(f"{name}.yaml.j2")


def _flow(data: object) -> str:
    return yaml_text(data, flow=True).rstrip("\n")


def _entry(data: Mapping[str, Any]) -> str:
    """Write one entry of a catalogue, each query on a line of its own."""
    queries = data.get("queries") or {}
    short = _flow({key: value for key, value in data.items() if key not in ("query", "queries")})
    if "query" in data:
        return f"{short[:-1]},\n     query: {_flow(data['query'])}}}"
    lines = ",\n       ".join(f"{key}: {_flow(query)}" for key, query in queries.items())
    return f"{short[:-1]}, queries: {{\n       {lines}}}}}" if lines else short
