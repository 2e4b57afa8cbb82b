"""A matrix of commands: its order, cells that fail, a run that was killed, and what must be there before the first."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
from buildcompare.config.yaml import checked
from labmatrix.experiment.matrix import Cell, Matrix, cells, read_matrix
from labmatrix.experiment.run import CELLS, CellState, State, _born, _clear
from labmatrix.params import read_variants
from support import command, refused, write_params, yaml_data

FACTORS = {"cache": ["on", "off"], "size": [1, 2, 3], "disk": ["local", "managed"]}

OF_SCALE_5 = (
    "scaling factor: 5\nnumber of clients: 1\nnumber of transactions actually processed: 9\n"
    "tps = 9.5 (without initial connection time)\n"
)


def matrix_of(**more: Any) -> Matrix:
    return checked(Matrix, {"factors": FACTORS, "seed": 7, "repeats": 2, "command": ["true"],
                            "baseline": {"cache": "on"}, **more})  # fmt: skip


def written(folder: Path, **more: Any) -> Path:
    shell = f"echo speed = 1{{size}}.5; echo {{cache}} {{size}} {{disk}} {{repeat}} >> {folder}/log"
    return write_params(folder / "small.yaml", {
        "factors": FACTORS, "seed": 7, "repeats": 1, "command": {"shell": shell}, "metrics": None,
        "result": {"values": {"speed": "^speed = (.+)$"}},
        "operations": {"speed": {"unit": "requests/s", "better": "higher"}}, **more,
    })  # fmt: skip


run = partial(command, "run")


def log_of(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def lines_of(order: list[Cell]) -> list[str]:
    return [" ".join([*cell.levels.values(), str(cell.repeat)]) for cell in order]


def state_of(folder: Path) -> State:
    return State.model_validate_json((folder / "state.json").read_bytes(), strict=False)


def test_the_order_is_random_and_follows_from_the_seed() -> None:
    order = cells(matrix_of())
    assert order == cells(matrix_of())
    assert order != cells(matrix_of(seed=8))
    assert [cell.number for cell in order] == list(range(1, 25))
    blocks = [order[:12], order[12:]]
    for number, block in enumerate(blocks, start=1):
        assert {cell.repeat for cell in block} == {number}
        assert len({tuple(cell.levels.values()) for cell in block}) == 12
    assert [cell.levels for cell in blocks[0]] != [cell.levels for cell in blocks[1]]
    assert len({cell.name for cell in order}) == 24


def test_the_files_of_the_docs_are_right(project: Path, tmp_path: Path) -> None:
    text = (project / "docs/experiments.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    counts = []
    for block in blocks:
        (tmp_path / "matrix.yaml").write_text(block, "utf-8")
        counts.append(len(cells(read_matrix(tmp_path / "matrix.yaml"))))
    assert counts == [24]
    assert {f"`{key}`" for key in Matrix.model_fields} - {"`name`"} <= {*re.findall(r"`\w+`", text)}


def test_all_cells_run_once_in_their_order_and_a_params_file_holds_them(tmp_path: Path) -> None:
    file, out = written(tmp_path), tmp_path / "out"
    done = run(file, "--output", out)
    assert done.exit_code == 0, done.stderr
    order = cells(read_matrix(file))
    assert log_of(tmp_path) == lines_of(order)
    lines = done.stdout.splitlines()
    assert len(lines) == 13
    assert lines[2].startswith("3 of 12 (cache ")
    assert "left" in lines[2]
    assert "left" not in lines[11]
    assert lines[12] == f"{out}/small-variants.yaml: 12 of 12 cells done"
    params = yaml_data((out / "small-variants.yaml").read_text("utf-8"))
    assert params["baseline"] == {"cache": "on", "size": "1", "disk": "local"}
    assert [each["levels"] for each in params["runs"]] == [dict(cell.levels) for cell in order]
    assert all(each["values"] == {"speed": float(f"1{each['levels']['size']}.5")} for each in params["runs"])
    assert len(read_variants(out / "small-variants.yaml").runs) == 12, "what variants.ipynb reads"
    assert all((Path(*each["artefacts"]) / "output.txt").is_file() for each in params["runs"])
    assert {"Kernel", "CPU", "Cores", "Memory"} <= params["setup"].keys()
    assert "seed 7" in params["setup"]["Order of the runs"]
    assert run(file, "--output", out).stdout.count("\n") == 1, "nothing is left to run"
    assert len(log_of(tmp_path)) == 12


def test_a_failing_cell_is_kept_and_named(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    shell = (
        f"echo speed = 1{{size}}; echo because >&2; echo x >> {tmp_path}/log;"
        f" test {{size}}{{cache}} != 2off || test -e {mended}"
    )
    file, out = written(tmp_path, command={"shell": shell}, tear_down=[["touch", "torn-down"]]), tmp_path / "out"
    done = run(file, "--output", out)
    assert done.exit_code == 4
    bad = {"cache": "off", "size": "2"}
    named = [cell.name for cell in cells(read_matrix(file)) if bad.items() <= cell.levels.items()]
    assert len(named) == 2
    *_, ended, again = done.stdout.splitlines()
    assert ended.endswith(f"10 of 12 cells done; failed: {', '.join(named)}")
    command = f"python -m buildcompare run {file} --output {out} --retry"
    assert again == f"Run the failed cells once more: {command}"
    assert done.stdout.count("failed, command: /bin/sh ended with exit code 1") == 2
    for name in named:
        assert (out / CELLS / name / "errors.txt").read_text() == "because\n"
        assert (out / CELLS / name / "torn-down").exists()
        assert state_of(out).cells[name].fault == "command: /bin/sh ended with exit code 1"
    params = yaml_data((out / "small-variants.yaml").read_text("utf-8"))
    assert len(params["runs"]) == 10
    assert all(name in params["setup"]["Failed cells"] for name in named)
    assert run(file, "--output", out).exit_code == 4, "it says so again, and runs none again"
    assert (len(log_of(tmp_path)), run(*command.split()[4:]).exit_code, len(log_of(tmp_path))) == (12, 4, 14)
    mended.touch()
    last = run(*command.split()[4:])
    assert last.exit_code == 0
    assert last.stdout.splitlines()[-1].endswith("12 of 12 cells done")
    assert len(log_of(tmp_path)) == 16


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"command": ["no-such-program"]}, "command: no-such-program: No such file or directory"),
        ({"command": ["sleep", "60"], "timeout_s": 0.2}, "command: sleep took more than 0.2 s"),
        ({"command": ["true"]}, "result: output.txt is missing or empty"),
        ({"command": ["echo", "slow"]}, "result: output.txt holds no number at '^speed = (.+)$'"),
        ({"command": ["echo", "speed = fast"]}, "result: output.txt holds no number at"),
        ({"command": ["echo", "speed = -4"]}, "values.speed: expected "),
        ({"command": ["echo", "speed = nan"]}, "values.speed: expected "),
        ({"command": ["echo", "connection refused"], "result": {}}, "output.txt: line 1: expected output of pgbench"),
        ({"command": ["echo", "Run was aborted"], "result": {}}, "expected a finished run"),
        ({"command": ["printf", OF_SCALE_5], "result": {}, "factors": {"scale": [20]}}, "expected scale 20, found 5"),
        ({"set_up": [["false"]]}, "set-up: false ended with exit code 1"),
        ({"command": ["false"], "tear_down": [["true"], ["false"]]}, "command: false ended with exit code 1"),
        ({"tear_down": [["false"]]}, "tear-down: false ended with exit code 1"),
        ({"artefacts": ["left.txt"]}, "artefacts: "),
        ({"ready": {"pattern": "finished"}}, "ready: output.txt holds no 'finished'"),
        (
            {"ready": {"pattern": "finished", "command": ["echo", "not yet"], "every_s": 0.05, "within_s": 0.2}},
            "ready: ready.txt holds no 'finished'",
        ),
    ],
)  # fmt: skip
def test_what_a_cell_can_fail_by(tmp_path: Path, more: Mapping[str, Any], fault: str) -> None:
    file = written(tmp_path, **{"factors": {"size": [1]}, "command": ["echo", "speed = 1"], **more})
    assert run(file, "--output", tmp_path / "out").exit_code == 4
    [cell] = state_of(tmp_path / "out").cells.values()
    assert cell.status == "failed"
    assert fault in str(cell.fault)


def test_results_that_come_later_programs_beside_and_artefacts(tmp_path: Path) -> None:
    work, left = tmp_path / "work", tmp_path / "left"
    work.mkdir()
    left.mkdir()
    later = f"(sleep 0.4; echo speed = 3 > {work}/log.txt; echo trace > {left}/{{size}}.folded) > /dev/null &"
    file = written(
        tmp_path, factors={"size": [1]}, set_up=[["rm", "-f", f"{work}/log.txt"]], command={"shell": later},
        ready={"pattern": "^speed", "command": ["cat", f"{work}/log.txt"], "every_s": 0.05, "within_s": 10},
        beside={"vmstat.txt": {"shell": "trap 'echo the end; exit' INT; while :; do sleep 0.05; done"}},
        artefacts=[f"{left}/{{size}}.folded"], result={"file": "ready.txt", "values": {"speed": "speed = (.+)"}},
    )  # fmt: skip
    assert run(file, "--output", tmp_path / "out").exit_code == 0
    [folder] = (tmp_path / "out" / CELLS).iterdir()
    assert (folder / "vmstat.txt").read_text() == "the end\n", "it was asked to end, and could close its file"
    assert (folder / "artefacts/1.folded").read_text() == "trace\n"
    params = yaml_data((tmp_path / "out/small-variants.yaml").read_text("utf-8"))
    assert params["runs"][0]["values"] == {"speed": 3.0}


def test_levels_are_arguments_and_no_words_of_a_shell(tmp_path: Path) -> None:
    hostile = "a b; touch mine $(touch mine)"
    file = written(tmp_path, factors={"size": [hostile]}, command=["echo", "speed = 1", "{size}"])
    assert run(file, "--output", tmp_path / "out").exit_code in (0, 4)
    file = written(tmp_path, factors={"size": [hostile]}, command={"shell": "echo speed = 1; echo {size}"})
    assert run(file, "--output", tmp_path / "shell").exit_code == 0
    for out in ("out", "shell"):
        [folder] = (tmp_path / out / CELLS).iterdir()
        assert hostile in (folder / "output.txt").read_text()
        assert not (folder / "mine").exists()


def wait_for(there: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_without_repeating_or_losing_a_cell(tmp_path: Path) -> None:
    order = cells(read_matrix(written(tmp_path)))
    held = order[5]
    [line] = lines_of([held])
    hold = f'if [ "$HOLD" ] && [ "$LINE" = "{line}" ]; then echo $$ > {tmp_path}/held; while :; do sleep 0.05; done; fi'
    shell = f'LINE="{{cache}} {{size}} {{disk}} {{repeat}}"; {hold}; echo speed = 1; echo $LINE >> {tmp_path}/log'
    file, out = written(tmp_path, command={"shell": shell}), tmp_path / "out"
    command = [sys.executable, "-m", "buildcompare", "run", str(file), "--output", str(out)]
    with (tmp_path / "said").open("wb") as said:
        first = subprocess.Popen(command, env={**os.environ, "HOLD": "1"}, stdout=said, stderr=said)
        wait_for(lambda: (tmp_path / "held").exists() and (tmp_path / "held").read_text().strip())
        assert "expected a folder not in use" in refused("run", file, "--output", out)
        first.send_signal(signal.SIGKILL)
        first.wait()
    state = state_of(out)
    assert Counter(each.status for each in state.cells.values()) == {"done": 5, "running": 1}
    assert state.cells[held.name].status == "running"
    left_running = int((tmp_path / "held").read_text())
    os.kill(left_running, 0)  # what the killed run had started is still at work
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other", seed=8)
    assert "expected the matrix that was started in this folder" in refused("run", other, "--output", out)
    done = run(file, "--output", out)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("6 of 12")
    assert len(done.stdout.splitlines()) == 8
    with pytest.raises(OSError, match="No such process"):
        os.kill(left_running, 0)
    assert log_of(tmp_path) == lines_of(order), "every cell came to its end once, in the order of the seed"
    assert len(yaml_data((out / "small-variants.yaml").read_text("utf-8"))["runs"]) == 12


def test_asked_to_end_it_says_how_far_it_is_and_clears_its_cell_away(tmp_path: Path) -> None:
    shell = f"echo speed = 1; if [ {{size}} = 2 ]; then echo $$ > {tmp_path}/held; sleep 60; fi"
    clear = [["touch", f"{tmp_path}/torn-down"]]
    file = written(tmp_path, factors={"size": [1, 2]}, seed=1, command={"shell": shell}, tear_down=clear)
    assert [cell.levels["size"] for cell in cells(read_matrix(file))] == ["1", "2"]
    command = [sys.executable, "-m", "buildcompare", "run", str(file), "--output", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline().startswith("1 of 2"), "through a pipe too, before the end"
        wait_for(lambda: (tmp_path / "held").exists() and (tmp_path / "held").read_text().strip())
        (tmp_path / "torn-down").unlink()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130, "as after Ctrl-C"
    with pytest.raises(OSError, match="No such process"):
        os.kill(int((tmp_path / "held").read_text()), 0)
    assert (tmp_path / "torn-down").exists()


def test_what_another_machine_left_running_is_not_looked_for_here(tmp_path: Path) -> None:
    matrix = matrix_of()
    cell = cells(matrix)[0]
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        born = _born(process.pid)
        _, _, when = born.partition(" ")
        for elsewhere in (f"another-boot {when}", when.rpartition(" ")[2], ""):
            _clear(matrix, cell, tmp_path, CellState(status="running", processes=[(process.pid, elsewhere)]))
            assert process.poll() is None
        _clear(matrix, cell, tmp_path, CellState(status="running", processes=[(process.pid, born)]))
        process.wait(5)  # else it raises


def test_what_is_missing_stops_it_before_the_first_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DB_PASSWORD", raising=False)
    file, out = written(tmp_path, credentials=["DB_PASSWORD"]), tmp_path / "out"
    said = refused("run", file, "--output", out)
    assert re.search(rf"{file}: credentials\[0\] \(line .*found DB_PASSWORD without a value", said)
    monkeypatch.setenv("DB_PASSWORD", "not-the-one")
    check = {"shell": 'if [ "$DB_PASSWORD" != secret ]; then echo "denied: $DB_PASSWORD" >&2; exit 2; fi'}
    said = refused("run", written(tmp_path, credentials=["DB_PASSWORD"], checks=[check]), "--output", out)
    assert "checks[0] (line" in said
    assert "expected a command that succeeds, found exit code 2: denied: ***" in said
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said = refused("run", written(tmp_path, targets=[f"127.0.0.1:{port}"]), "--output", out)
    assert "expected a target that answers, found 127.0.0.1" in said
    source = {"kind": "prometheus", "url": f"http://127.0.0.1:{port}"}
    stopped = run(written(tmp_path, source=source), "--output", out)
    assert stopped.exit_code == 4
    assert str(port) in stopped.stderr
    assert not (tmp_path / "log").exists(), "no cell was run"
    assert not (out / CELLS).exists()
    monkeypatch.setenv("DB_PASSWORD", "secret")
    shell = f"echo $DB_PASSWORD; echo speed = 1; echo x >> {tmp_path}/log"
    file = written(tmp_path, credentials=["DB_PASSWORD"], checks=[check], command={"shell": shell})
    assert (run(file, "--output", out).exit_code, len(log_of(tmp_path))) == (0, 12)
    for output in out.rglob("output.txt"):
        assert output.read_text() == "***\nspeed = 1\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"factors": {}}, "expected at least one factor"),
        ({"factors": {"size": ["1 0", "1-0"]}}, "expected levels that differ in letters or digits"),
        ({"factors": {"cell": [1]}}, "expected a name of letters, digits and _"),
        ({"command": ["echo", "{disc}"]}, "in braces, or braces twice, found '{disc}' in '{disc}'"),
        ({"command": "echo x"}, "expected"),
        ({"checks": [["echo", "{size}"]]}, "expected root in braces, or braces twice"),
        ({"baseline": {"size": "9"}}, "expected a level of size in `baseline`, found '9'"),
        ({"repeats": 1000}, "expected at most 10,000 cells, found 12,000"),
        ({"result": {"values": {"speed": "(("}}}, "expected a regular expression with at most one group"),
        ({"seed": -1}, "expected greater than or equal to 0"),
        ({"unknown": 1}, "found the unknown key `unknown`"),
    ],
)  # fmt: skip
def test_a_wrong_matrix_is_refused(tmp_path: Path, more: Mapping[str, Any], said: str) -> None:
    with pytest.raises(bc.InputError, match=rf"small\.yaml: .*{re.escape(said)}"):
        read_matrix(written(tmp_path, **more))


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert "expected a new or empty folder" in refused("run", written(tmp_path), "--output", tmp_path)
    assert not (tmp_path / "log").exists()
