"""What people write stays theirs and reaches the page: blocks of README.md and local pictures; and each table's CSV."""

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import buildcompare as bc
from buildcompare.config.project import write_files
from buildcompare.report import markdown
from buildcompare.report.publish import publish
from buildcompare.results import Results
from support import command, small_params, write_params

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
REMOTE = "https://example.org/secret.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("written")
    (made / "spike.png").write_bytes(PIXEL)
    (made / "script.svg").write_text("<svg onload='alert(1)'/>")
    pictures = [f"The spike: ![at 31 min]({made / 'spike.png'})", f"![elsewhere]({REMOTE})"]
    faults = [f"![lost]({made / 'lost.png'})", f"![drawn]({made / 'script.svg'})"]
    params = small_params(made / "data", comments=[*pictures, *faults])
    output = made / "out"
    output.mkdir()
    (output / "results.json").write_text('{"schema_version": 1, "comparison": "x", "complete": true}')
    block = markdown.markers("comments").replace("\n", "\n- Seen *twice* <b>x</b> ![mine](../spike.png)\n", 1)
    (output / "README.md").write_text(f"# mine\n\n{block}\n\n{markdown.markers('action-items')}\n", "utf-8")
    publish(write_params(made / "small.yaml", params), output=output)
    return output


@pytest.mark.slow
def test_a_picture_of_a_local_file_is_embedded_and_no_other(
    folder: Path, requests_of: Callable[..., list[str]]
) -> None:
    page, readme = ((folder / name).read_text("utf-8") for name in ("report.html", "README.md"))
    assert page.count(f'<img alt="at 31 min" src="data:image/png;base64,{base64.b64encode(PIXEL).decode()}">') == 1
    assert f'src="{REMOTE}' not in page
    refused = [line for line in page.split("<em>")[1:] if "not shown" in line.partition("</em>")[0]]
    assert len(refused) >= 3
    assert REMOTE in refused[0]
    assert "lost.png" in refused[1]
    assert "script.svg" in refused[2]
    assert requests_of(folder / "report.html") == []
    [copy] = (folder / "images").iterdir()
    assert copy.read_bytes() == PIXEL
    assert f"![at 31 min](images/{copy.name})" in readme
    assert f"- ![elsewhere]({REMOTE})" in readme


@pytest.mark.slow
def test_what_is_written_into_readme_reaches_the_page_and_stays(folder: Path) -> None:
    page, readme = ((folder / name).read_text("utf-8") for name in ("report.html", "README.md"))
    by_hand = page.partition('<div class="by-hand">')[2].partition("</div>")[0]
    assert "Seen <em>twice</em> &lt;b&gt;x&lt;/b&gt;" in by_hand
    assert page.index('id="comments"') < page.index('class="by-hand"') < page.index('id="supported-users"')
    assert "- Seen *twice* <b>x</b> ![mine](../spike.png)\n" in readme


def rows_of(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    tests = results["tests"]
    every = {
        "tests": [{"test": test["name"], "type": test["type"], "verdict": test["verdict"]} for test in tests],
        "supported_users": [{"test": t["name"], **t["supported_users"]} for t in tests if t["supported_users"]],
        "ramp_up": [
            {"test": test["name"], "build": side, "duration_s": run["duration_s"], **run["ramp_up"]}
            for test in tests for side in ("base", "new") for run in test["runs"][side]
        ],
        "inputs": results["provenance"]["inputs"], **{key: results[key] for key in ("findings", "pooled", "setup")},
    }  # fmt: skip
    for key in ("metrics", "labels", "events", "errors"):
        every[key] = [{"test": test["name"], **row} for test in tests for row in test[key]]
    rows = [{"test": plan["test"], **row} for plan in results["plan"] for row in plan["rows"]]
    every["further_runs"] = [{**r, **step} for r in rows if r["status"] == "inconclusive" for step in r["steps"]]
    return {name: found for name, found in every.items() if found}


LEAST = {"metrics": {"metric", "base", "new", "delta_percent", "ci_low", "ci_high", "status"},
         "labels": {"group", "label", "stat", "base", "new", "delta_percent", "status"},
         "supported_users": {"base", "new", "delta_percent", "status"},
         "findings": {"id", "severity", "text", "detail"},
         "ramp_up": {"onset_s", "slope_users_per_s", "early_bumps", "wave_onset_s"},
         "further_runs": {"test", "name", "further", "found_percent"},
         "inputs": {"path", "sha256"}, "setup": {"setting", "value"}, "tests": {"verdict"}}  # fmt: skip


def flat(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if key == "reason" and value:
            yield prefix + key, value.get("code")
        elif isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}_")
        elif not isinstance(value, list):
            yield prefix + ("metric" if key == "slug" else key), value


def test_every_table_holds_the_numbers_of_the_results(bundled: Callable[[str], Path]) -> None:
    folder = bundled("v10.4.0-rc1")
    results = json.loads((folder / "results.json").read_text("utf-8"))
    made = {file.stem: file.read_text("utf-8") for file in (folder / "tables").iterdir()}
    expected = rows_of(results)
    assert {*expected} <= {*made}
    assert {*made} - {*expected} <= {"errors_counted", "setup_differences", "drift"}
    for name, found in expected.items():
        table = pd.read_csv(io.StringIO(made[name]), dtype=str, keep_default_na=False)
        rows = [dict(flat(row)) for row in found]
        assert len(table) == len(rows), name
        assert {*table.columns} >= LEAST.get(name, set()), name
        compared = 0
        for row, (_, cells) in zip(rows, table.iterrows(), strict=True):
            for column in {*row} & {*table.columns}:
                value, cell = row[column], cells[column]
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    assert float(cell) == pytest.approx(value, rel=1e-12), (name, column)
                else:
                    assert cell == ("" if value is None else str(value)), (name, column)
                compared += 1
        assert compared >= len(rows) * len(LEAST.get(name, ())), name


BEGIN, END = "<!-- hand-written begin: comments -->", "<!-- hand-written end: comments -->"
OTHER = markdown.markers("action-items")


def readme(text: str) -> str:
    return f"# Performance Comparison\n\n{BEGIN}{text}{END}\n\n{OTHER}\n"


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("readme") / "README.md"
    file.write_bytes(readme(text).encode())
    fresh = f"# Performance Comparison\n\nnew\n\n{markdown.markers('comments')}\n\n{OTHER}\n"
    for _ in range(3):
        write_files({file: markdown.put_written(fresh, markdown.read_written(file))})
    assert f"{BEGIN}{text}{END}".encode() in file.read_bytes()


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_lines_of_any_ending_and_order_survive(tmp_path: Path, ending: str) -> None:
    file = tmp_path / "README.md"
    blocks = [f"{markdown.markers(block)}" for block in reversed(markdown.BLOCKS)]
    mine = f"{ending}- \u00e9 \U0001f600 mine{ending}"
    text = f"# Moved{ending}" + ending.join(blocks)
    file.write_bytes(text.replace(f"{BEGIN}\n", f"{BEGIN}{mine}").encode())
    fresh = readme("\n")
    write_files({file: markdown.put_written(fresh, markdown.read_written(file))})
    assert f"{BEGIN}{mine}{END}".encode() in file.read_bytes()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (f"{BEGIN}\nmine\n", "line 1", "hand-written end: comments"),
        (f"\nmine\n{END}\n", "line 3", "hand-written begin: comments"),
        (f"{BEGIN}\n{BEGIN}\n{END}", "line 2", "hand-written end: comments"),
        (f"{BEGIN}\n{OTHER}\n{END}", "line 2", "hand-written end: comments"),
        (f"{BEGIN}{END}\n{BEGIN}{END}\n{OTHER}", "line 2", "one block"),
        (f"{BEGIN}{END}\n<!-- hand-written begin: coments -->", "line 2", "a marker of comments or action-items"),
        (f"# Performance Comparison\n{BEGIN}mine{END}\n", "the markers", "begin: action-items"),
        (f"# A title of my own\n{BEGIN}mine{END}\n", "the markers", "begin: action-items"),
        ("# Performance Comparison\n\nmine\n", "the markers", "begin: comments"),
        ("# Somebody's own\n", "the markers", "no README.md"),
        (f"<!--hand-written begin: comments-->mine{END}\n{OTHER}", "line 1", "to the letter"),
        (f"{BEGIN}mine\n<!-- hand-written end comments -->\n{OTHER}", "line 2", "to the letter"),
        (
            f"{OTHER}\n<!-- Hand-Written Begin: comments -->mine\n<!-- hand written end: comments -->",
            "line 3",
            "to the",
        ),
        (f"{OTHER}\n<! -- hand-written begin: comments -- >mine", "line 3", "to the letter"),
    ],
)
def test_a_broken_marker_is_named(tmp_path: Path, text: str, line: str, expected: str) -> None:
    file = tmp_path / "README.md"
    file.write_text(text)
    with pytest.raises(bc.InputError, match=rf"{line}: expected .*{expected}.*, found"):
        markdown.read_written(file)


@pytest.mark.slow
def test_a_hand_edit_survives_regenerations_and_a_broken_marker_writes_nothing(tmp_path: Path) -> None:
    small = small_params(tmp_path / "data", comments=["From the *params*."])
    params = write_params(tmp_path / "small.yaml", {**small, "tests": small["tests"][:1]})
    output = tmp_path / "out"
    publish(params, output=output)
    file = output / "README.md"
    assert markdown.NOTICE in file.read_text("utf-8").partition("##")[0], "said where people begin to edit"
    mine = "\n- We **ship** it.  \n\n\t- | odd | <b>bytes</b> \u00e9 $x$\n"
    file.write_bytes(file.read_bytes().replace(f"{BEGIN}\n".encode(), f"{BEGIN}{mine}".encode()))
    edited = file.read_bytes()
    assert b"From the *params*." in edited
    assert (command("report", params, "--output", output).exit_code, file.read_bytes()) == (0, edited)
    results = Results.model_validate(json.loads((output / "results.json").read_text("utf-8")))
    hands = f"{BEGIN}{mine}{END}".encode()
    for verdict in ("pass", "regression"):  # what stands around the block differs every time
        again = results.model_copy(update={"verdict": verdict, "comments": [verdict]})
        before = file.read_bytes()
        file.write_bytes(markdown.put_written(markdown.render(again, []), markdown.read_written(file)).encode())
        assert file.read_bytes() != before
        assert file.read_bytes().count(hands) == 1
    publish(params, output=output)
    assert file.read_bytes() == edited
    file.write_bytes(edited.replace(END.encode(), b""))
    kept = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    with pytest.raises(bc.InputError, match="hand-written"):
        publish(params, output=output)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == kept
