"""The golden reports: what the bundled comparisons published when somebody last looked. `make golden` makes them again.

A golden report is results.json without `provenance.run` and without its sentences, its numbers rounded to six
significant digits: numbers and codes. Its label rows are written as tables, with what many rows share said once; of
metrics nulls are left out. Beside it, of the first comparison, README.md, the comment of a pull request and what the
terminal shows in two widths are pictures of the wording.
"""

import itertools
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from buildcompare.report.markdown import comment
from buildcompare.report.publish import publish
from buildcompare.report.terminal import lines
from buildcompare.results import Results

GOLDEN = Path(__file__).parent / "golden"
BUNDLED = ("v10.4.0-rc1", "v11.1.0-rc2", "v9.6.0-rc1")
TERMINALS = (80, 120)
"""Columns of the windows in which the first comparison is kept."""
DIGITS = 6
"""Processors and their libraries add in another order: the last digits of a sum differ."""
TOLERANCE = 1e-5
"""Relative; one unit of the last of the kept digits, so that a number at a rounding's edge is not another one."""
WIDTH = 140
SENTENCES = ("text", "detail", "verdict_rule")
"""Keys of results.json whose values are made from the numbers and codes beside them."""
KIND = ("group", "stat", "status", "only_in", "reason", "at_least", "window", "noise_source", "shared_percent")
"""What few label rows have alone: said once for all that agree in it."""


def made(report: Path) -> dict[str, str]:
    results = json.loads((report / "results.json").read_text("utf-8"))
    results["provenance"].pop("run")
    for test in results["tests"]:
        test["labels"] = _table(test["labels"])
        test["metrics"] = [_without_nulls(row) for row in test["metrics"]]
    files = {"results.json": "\n".join(_lines(_kept(results))) + "\n"}
    if results["comparison"] == BUNDLED[0]:
        files["README.md"] = (report / "README.md").read_text("utf-8")
        shown = Results.model_validate_json((report / "results.json").read_text("utf-8"))
        files["comment.md"] = comment(shown)
        files |= {f"terminal-{width}.txt": lines(shown, width=width) for width in TERMINALS}
    return files


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    inner = {key: _without_nulls(each) if isinstance(each, dict) else each for key, each in row.items()}
    return {key: each for key, each in inner.items() if each is not None}


def kept(name: str) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in sorted((GOLDEN / name).iterdir())}


def differences(kept: Any, made: Any, where: str = "results") -> Iterator[str]:
    if isinstance(kept, dict) and isinstance(made, dict):
        for key in sorted({*kept, *made}):
            if (key in kept) != (key in made):
                yield f"{where}.{key} is {'new' if key in made else 'gone'}"
            else:
                yield from differences(kept[key], made[key], f"{where}.{key}")
    elif isinstance(kept, list) and isinstance(made, list):
        if len(kept) != len(made):
            yield f"{where} has {len(made)} entries, golden {len(kept)}"
        for i, (old, new) in enumerate(zip(kept, made, strict=False)):
            yield from differences(old, new, f"{where}[{i}]")
    elif _number(kept) and _number(made):
        if not math.isclose(kept, made, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield f"{where} is {made}, golden {kept}"
    elif kept != made or isinstance(kept, bool) != isinstance(made, bool):
        yield f"{where} is {made!r}, golden {kept!r}"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _kept(each) for key, each in value.items() if key not in SENTENCES}
    if isinstance(value, list):
        return [_kept(each) for each in value]
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Label rows as a table: what all share, the kinds of row that there are, and by label its rows with their kind.

    A change that is just what base and new say is left out of a row.
    """
    keys = [key for key in (rows[0] if rows else ()) if key != "label"]
    assert all(row["delta_percent"] is None or math.isclose(row["delta_percent"], _change(row)) for row in rows)
    same = {key: rows[0][key] for key in keys if all(row[key] == rows[0][key] for row in rows)}
    of_kind = [key for key in KIND if key in keys and key not in same]
    columns = [key for key in keys if key not in same and key not in of_kind and key != "delta_percent"]
    kinds: list[dict[str, Any]] = []
    table: list[list[Any]] = []
    for label, of_label in itertools.groupby(rows, key=lambda row: row["label"]):
        table.append([label])
        for row in of_label:
            kind = {key: row[key] for key in of_kind}
            if kind not in kinds:
                kinds.append(kind)
            table[-1].append([kinds.index(kind), *(row[key] for key in columns)])
    return {"same": same, "kinds": kinds, "columns": columns, "rows": table}


def _change(row: dict[str, Any]) -> float:
    return 100.0 * (float(row["new"]) / float(row["base"]) - 1.0)


def _lines(value: Any, indent: str = "", key: str = "") -> Iterator[str]:
    short = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(key) + len(short) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        yield f"{indent}{key}{short}"
        return
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    packed = ""  # short entries share a line
    entries = list(value.items()) if isinstance(value, dict) else [(None, each) for each in value]
    yield f"{indent}{key}{opening}"
    for i, (name, each) in enumerate(entries):
        lines = list(_lines(each, indent + " ", "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "))
        comma = "," if i + 1 < len(entries) else ""
        lines[-1] += comma
        if packed and len(lines) == 1 and len(packed) + len(lines[0].strip()) < WIDTH:
            packed += " " + lines[0].strip()
            continue
        if packed:
            yield packed
        packed = lines[0] if len(lines) == 1 else ""
        yield from lines if len(lines) > 1 else ()
    if packed:
        yield packed
    yield f"{indent}{closing}"


def make_again() -> None:
    for name in BUNDLED:
        with tempfile.TemporaryDirectory() as folder:
            publish(GOLDEN.parents[1] / f"params/{name}.yaml", output=Path(folder) / name)
            files = made(Path(folder) / name)
        (GOLDEN / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (GOLDEN / name / file).write_text(text, "utf-8")
        print(f"{GOLDEN.name}/{name}: {sum(map(len, files.values())):,} characters")


if __name__ == "__main__":
    make_again()
