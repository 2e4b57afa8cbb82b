"""Write a params file and a catalogue for builds that nobody has described, and say what was recognised in them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from buildcompare.recordings.formats import formats
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import ENDING, read_runs
from buildcompare.results import RunResult
from buildcompare.results.codes import SIDES, Side
from buildcompare.text.sentences import say

MOST_LABELS = 12  # endpoints that are printed by name
MOST_UNUSED = 15  # unused names that are printed; the params file lists all
Runs = Mapping[Side, Sequence[Mapping[str, object]]]  # the keys of each run in a params file


class Draft(NamedTuple):
    """Params and catalogue of two builds, and what was recognised in them, before they are written."""

    params: Comparison  # its `metrics` are filled in when the catalogue is written
    runs: Runs
    catalogue: Catalogue
    sources: Sequence[str]  # lines on the files or the server
    load: Sequence[str]  # lines on the load
    labels: Mapping[str, Collection[str]]  # table -> its labels
    unused: Mapping[str, str]  # unused file or column -> code of the reason
    recorded: Collection[str]  # slugs of metrics with numbers
    recognised: str = ""  # name of the catalogue that was recognised
    about: Mapping[Side, Sequence[str]] = {}  # a comment on each run


def first_params(names: Sequence[str], source: Mapping[str, object], kind: str, runs: Runs) -> Comparison:
    """Make the params of one test of two builds."""
    base, new = ({"label": name} for name in names)
    return check_params({"base": base, "new": new, "source": source, "tests": [{"name": kind, "type": kind, **runs}]})


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
    catalogue = with_times(catalogue, ((each.name, each.unit) for run in every for each in run.measurements))
    timed, of_first = any(run.series for run in every), str(every[0].provenance["kind"])
    source = of_first if of_first in FILE_KEYS else "recorded" if every[0].series else "values"
    keys = {side: [_keys_of(run, paths[side]) for run in runs[side]] for side in SIDES}
    names = build_names((None, None), [[base], [new]], runs)
    params = first_params(names, {"kind": source}, "bounded" if timed else "benchmark", keys)
    kinds = {side: sorted({str(run.provenance["kind"]) for run in runs[side]}) for side in SIDES}
    lengths = {side: [run.duration_s for run in runs[side]] for side in SIDES}
    about, load = _windows(params, runs, catalogue) if timed else ({}, ())
    labels = defaultdict[str, set[str]](set)
    for run in every:
        series = ((each.metric, each.name) for each in run.series if each.role == "label")
        for group, label in (*series, *((each.group, each.label) for each in run.label_summaries)):
            labels[group].add(label)
    recorded = {each.metric for run in every for each in _with_numbers(run)}
    return Draft(
        params,
        keys,
        catalogue,
        sources=[say("init", "build", paths[side], side, kinds[side], lengths[side]) for side in SIDES],
        load=load,
        labels=labels,
        unused=dict(pair for side in SIDES for pair in _unused(paths[side], runs[side])),
        recorded=recorded | {each.metric for run in every for each in run.measurements},
        recognised=recognised,
        about=about,
    )


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
    labels = [_stated(each) for each in files if ".labels." in Path(each).name]
    return {key: _stated(main[0]), **({"labels": labels[0]} if labels else {})}


def _parts(names: Collection[str]) -> set[str]:
    """Return the names of files that belong to another of these."""
    return set().union(*(form.parts(names) for form in formats()))


def _stated(path: str) -> str:
    """Write a path as params files do: relative to the project's root if it lies there."""
    if is_remote(path):
        return path
    absolute = resolve(path).absolute()
    return str(absolute.relative_to(root()) if absolute.is_relative_to(root()) else absolute)


def _with_numbers(run: Recording) -> list[Series]:
    return [each for each in run.graphs() if np.isfinite(each.values).any()]


def _unused(path: str, runs: Sequence[Recording]) -> Iterator[tuple[str, str]]:
    """Name the files of a folder that were not read, and the columns without a number, each with its reason."""
    place = Path(path)
    if not is_remote(path) and place.is_dir():
        there = sorted(place.iterdir())
        files = (Path(str(each["path"])) for run in runs for each in run.provenance["files"])
        read = {name for file in files for name in (file.name, file.parent.name)}  # a run may have a folder
        read |= _parts([each.name for each in there])
        for each in (each for each in there if each.name not in read):
            fits = "beside" if ENDING.search(each.name) else "ending"
            yield str(each), "folder" if each.is_dir() else "hidden" if each.name.startswith(".") else fits
    numbers = {each.name for run in runs for each in _with_numbers(run)}
    yield from ((each.name, "empty") for run in runs for each in run.graphs() if each.name not in numbers)


def _windows(params: Comparison, runs: Builds, catalogue: Catalogue) -> tuple[dict[Side, list[str]], list[str]]:
    """Say which part of each run is steady, and which metric is the load."""
    (test,) = analyse(params, {params.tests[0].name: runs}, catalogue=catalogue).results.tests

    def words(run: RunResult) -> str:
        return say("init", "run", run.window, run.window_reason and say("reasons", "reason_words", run.window_reason))

    about = {side: [words(run) for run in test.runs[side]] for side in SIDES}
    slug = test.runs.base[0].load_curve
    curve = runs["base"][0].total(slug) if slug else None
    load = (curve.name, f"{np.nanmax(curve.values):,.4g}", curve.unit) if curve else ()
    return about, [say("init", "load", *load), *(say("init", "windows", side, about[side]) for side in SIDES)]


# ---- The two files ---------------------------------------------------------------------------------------------------


def write_draft(draft: Draft, output: Path | None, *, command: str, force: bool) -> list[str]:
    """Write a params file and its catalogue, both or neither; return lines on what was recognised and written.

    The params file is `output`, by default ``params/NAME.yaml`` of the project, after the new build. A comment names
    the `command`. Files that exist are overwritten with `force` only.
    """
    default = re.sub(r"[^A-Za-z0-9._-]+", "-", draft.params.new.label).strip(".-")[:80] or "comparison"
    file = output or Path("params", f"{default}.yaml")
    if not re.fullmatch(SLUG, file.stem) or file.suffix not in (".yaml", ".yml"):
        raise InputError(file=None, key="--output", expected="a file such as params/NAME.yaml", found=repr(file.name))
    place = file if output or root() == Path.cwd() else root() / file
    beside = place.parent / "metrics" / f"{file.stem}.yaml"
    for each in (place, beside):
        if each.exists() and not force:
            expected, found = "no file, or --force to overwrite it", f"one of {each.stat().st_size:,} bytes"
            raise InputError(file=each, key=None, expected=expected, found=found)
    is_listed = beside.absolute() == root() / "params/metrics" / beside.name
    params = draft.params.model_copy(update={"metrics": file.stem if is_listed else _stated(str(beside.absolute()))})
    metrics, recorded = draft.catalogue.metrics, draft.recorded
    remarks = {each.slug: say("init", "remark", not each.known, each.slug in recorded) for each in metrics}
    unused = [say("init", "unused", name, say("init", "why", why)) for name, why in draft.unused.items()]
    catalogue = draft.catalogue.model_dump(mode="json", exclude_defaults=True)
    catalogue["metrics"] = [_stated_metric(each) for each in metrics]
    source = params.source.model_dump(mode="json", exclude_defaults=True)
    shown = {"params": params, "runs": draft.runs, "about": draft.about, "source": source, "catalogue": catalogue}
    shown |= {"remarks": remarks, "unused": unused, "file": place, "command": command}
    with writing(place, "--output", "a file that can be written"):
        write_files({place: _template("params").render(shown), beside: _template("catalogue").render(shown)})
    assumed = any(not each.known and each.slug in recorded for each in metrics)
    return [
        *draft.sources,
        say("init", "metrics", draft.recognised, assumed),
        *(say("init", "metric", each, remarks[each.slug]) for each in metrics if each.slug in recorded),
        *draft.load,
        *(say("init", "labels", group, sorted(names), MOST_LABELS) for group, names in draft.labels.items()),
        *([say("init", "not_used", len(unused), MOST_UNUSED, place)] if unused else ()),
        *(f"  {each}" for each in unused[:MOST_UNUSED]),
        say("init", "written", place, beside),
    ]


def _stated_metric(metric: Metric) -> dict[str, object]:
    """The keys of a metric in a catalogue: what differs from the defaults, and what a reader may want to change."""
    changed = metric.model_dump(mode="json", exclude_defaults=True, exclude={"known"})
    shown = {"better": str(metric.better), "margin_percent": metric.margin_percent, **changed}
    return {key: shown[key] for key in type(metric).model_fields if key in shown}


def _template(name: str) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # late: not every command needs it

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=False,  # noqa: S701  # YAML, whose values `flow` quotes
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(flow=lambda data: yaml_text(data, flow=True).rstrip("\n"), line=one_line)
    return made.get_template(f"{name}.yaml.j2")
