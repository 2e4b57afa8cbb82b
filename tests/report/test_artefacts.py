"""What runs left behind stands in the report's folder and is linked from the page; nothing from outside comes along."""

import os
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
from buildcompare.comparison import artefacts
from buildcompare.config.params import check_params
from buildcompare.report.publish import publish
from support import small_params, write_params


def params_with(folder: Path, *named: str) -> dict[str, Any]:
    params = small_params(folder / "data")
    params["tests"][1]["new"]["artefacts"] = list(named)
    return params


def refused(folder: Path, *named: str) -> str:
    with pytest.raises(bc.InputError) as refusal:
        artefacts.of_runs(check_params(params_with(folder, *named)))
    return str(refusal.value)


@pytest.mark.slow
def test_artefacts_are_copied_and_linked(tmp_path: Path) -> None:
    output = tmp_path / "left" / "output"
    (output / "deep").mkdir(parents=True)
    (output / "deep" / "<b>&.txt").write_text("iostat")
    (output / "run.log").write_text("tps = 5")
    (tmp_path / "output").write_text("another of that name")
    params = params_with(tmp_path, str(output), str(tmp_path / "output"))
    file = write_params(tmp_path / "small.yaml", params)
    published = publish(file, output=tmp_path / "out")
    assert publish(file, output=tmp_path / "out", resume=True).kept
    (output / "run.log").write_text("tps = 6")
    assert not publish(file, output=tmp_path / "out", resume=True).kept, "another artefact makes another report"
    [row] = published.results.provenance.artefacts
    assert (row.test, row.build, row.run, row.files) == ("postgresql_unbounded", "new", 1, 3)
    own = tmp_path / "out" / row.path
    assert (own / "output/deep/<b>&.txt").read_text() == "iostat"
    assert (own / "output/run.log").read_text() == "tps = 6"
    assert (own / "2-output").read_text() == "another of that name"
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert page.count(f'href="{row.path}/"') == 1
    del params["tests"][1]["new"]["artefacts"]
    write_params(file, params)
    assert publish(file, output=tmp_path / "out").results.provenance.artefacts == []
    assert not (tmp_path / "out/artefacts").exists(), "an archive that nothing names any more"


def test_what_a_browser_would_run_is_text(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    for name in ("a.html", "a.html.txt", "b.SVG", "c.log"):
        (folder / name).write_text(name)
    params = check_params(params_with(tmp_path, str(folder), str(folder / "a.html")))
    [(_, found)] = artefacts.of_runs(params)
    names = {each.source.name: each.place.name for each in found[:4]}
    assert names == {"a.html": "a.html.txt.txt", "a.html.txt": "a.html.txt", "b.SVG": "b.SVG.txt", "c.log": "c.log"}
    assert found[4].place.name == "a.html.txt"


def test_links_devices_and_what_is_missing_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "secret").symlink_to("/etc/passwd")
    expected = "secret: expected a file or folder without symbolic links, found a symbolic link"
    assert all(refused(tmp_path, str(each)).endswith(expected) for each in (folder, folder / "secret"))
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path, str(tmp_path / "pipe")).endswith("found no regular file")
    assert refused(tmp_path, str(tmp_path / "none")).endswith("found No such file or directory")
    assert "a\\x00b: expected a file or folder" in refused(tmp_path, "a\0b")
    assert refused(tmp_path, str(tmp_path / "none")).startswith("tests[1].new")


def test_the_archive_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "MAX_FILES", 2)
    monkeypatch.setattr(artefacts, "MAX_BYTES", 3_000_000)
    left = tmp_path / "left"
    left.mkdir()
    for name in "abc":
        (left / name).write_text(name)
    assert "expected at most 2 files and 3 MB in one report, found 3 files" in refused(tmp_path, str(left))
    with (left / "a").open("wb") as sparse:
        sparse.truncate(3_000_001)
    assert "expected at most 2 files and 3 MB" in refused(tmp_path, str(left / "a"))


def test_a_file_that_grows_or_becomes_a_link_is_not_copied(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("one")
    [(_, found)] = artefacts.of_runs(check_params(params_with(tmp_path, str(log))))
    log.write_text("one and more")
    with pytest.raises(bc.InputError, match="a file of constant size"):
        artefacts.copy(found, tmp_path / "out")
    log.unlink()
    log.symlink_to("/etc/passwd")
    with pytest.raises(bc.InputError, match="a file that can be read"):
        artefacts.copy(found, tmp_path / "out")
