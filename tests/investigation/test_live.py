"""PromQL by hand against real servers, over the times of a test's runs."""

from pathlib import Path

import pytest

import buildcompare as bc
from buildcompare.config.params import check_params
from investigation.live import ask_server
from prometheus_server import Servers, free_port
from pulling import params


@pytest.fixture(scope="module")
def seen(servers: Servers, tmp_path_factory: pytest.TempPathFactory, project: Path) -> bc.Investigation:
    folder = tmp_path_factory.mktemp("pulled")
    (folder / "params").symlink_to(project / "params")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUILDCOMPARE_ROOT", str(folder))
        return bc.investigate(check_params(params(servers("prometheus").url)), metric="cpu-utilization")


def test_its_query_gives_the_samples_that_were_pulled(seen: bc.Investigation) -> None:
    answer = seen.ask()
    assert sorted(answer["build"].unique()) == ["base", "new"]
    for side in ("base", "new"):
        live = answer[answer["build"] == side]
        pulled = seen.samples[seen.samples["build"] == side]
        assert live["elapsed_s"].tolist() == pytest.approx(pulled["elapsed_s"].tolist())
        assert live["value"].tolist() == pytest.approx(pulled["value"].tolist(), nan_ok=True)


def test_an_edited_query_is_asked(seen: bc.Investigation) -> None:
    halved = seen.ask(f"({seen.query}) / 2")
    assert halved["value"].tolist() == pytest.approx((seen.ask()["value"] / 2).tolist(), nan_ok=True)
    assert seen.ask("nothing_of_this_name").empty
    bench = bc.Workbench(seen)
    bench.query.value = f"({seen.query}) / 2"
    bench.ask.click()
    assert f"{len(halved):,} samples" in bench.answered.value
    assert "<img alt=" in bench.answered.value


def test_a_query_that_is_none_is_refused_in_the_servers_words(seen: bc.Investigation) -> None:
    with pytest.raises(
        bc.InputError, match=r"^query: expected a query that the server can answer at .*, found .*parse"
    ):
        seen.ask("rate(")


def test_a_server_that_is_gone_is_named(seen: bc.Investigation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_: None)
    params, gone = seen.analysis.params, f"http://127.0.0.1:{free_port()}"
    moved = params.model_copy(update={"source": params.source.model_copy(update={"url": gone})})
    with pytest.raises(bc.SourceError, match=f"{gone}: expected an answer, found ConnectionError"):
        ask_server(moved, seen.views, "up")
