"""What people write into a published README stays theirs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildcompare.config.errors import InputError
from buildcompare.config.project import write_files
from buildcompare.report import markdown
from buildcompare.report.publish import publish
from buildcompare.results import Results
from support import command, small_params, write_params

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
    with pytest.raises(InputError, match=rf"{line}: expected .*{expected}.*, found"):
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
    with pytest.raises(InputError, match="hand-written"):
        publish(params, output=output)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == kept
