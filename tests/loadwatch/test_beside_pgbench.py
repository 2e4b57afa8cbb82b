"""A watch beside pgbench: a real PostgreSQL, its exporter, and a Prometheus that is restarted in the middle."""

import datetime as dt
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.config.yaml import yaml_text
from postgresql_server import database  # noqa: F401 - a fixture
from prometheus_server import free_port, needed

LENGTH_S = 80.0


def started(command: list[str], log: Path, **more: object) -> subprocess.Popen[bytes]:
    with log.open("ab") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=sink, **more)  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_build_without_its_index_is_stopped_and_a_restart_of_the_server_loses_nothing(
    project: Path,
    tmp_path: Path,
    database: list[str],  # noqa: F811  # the imported fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter, prometheus = needed("prometheus-postgres-exporter", "prometheus-postgres-exporter"), needed("prometheus")
    place, own = database[database.index("-h") + 1], database[: database.index("pgbench")]
    ports = free_port(), free_port()
    psql = [*own, "psql", "-q", "-h", place, "-U", "postgres", "-d"]
    subprocess.run([*psql, "postgres", "-c", "create database shop"], check=True, cwd=place)
    tables, visit = ((project / f"params/example/{name}.sql").read_bytes() for name in ("tables", "visit"))
    made = b"\n".join(line for line in tables.splitlines() if b"pg_stat_statements" not in line)
    subprocess.run([*psql, "shop", "-v", "index=missing"], input=made, check=True, cwd=place)
    (Path(place) / "visit.sql").write_bytes(visit)
    (tmp_path / "prom.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f'  - {{job_name: postgres, static_configs: [{{targets: ["127.0.0.1:{ports[0]}"]}}]}}\n'
    )
    listen = [f"--config.file={tmp_path}/prom.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    server = [prometheus, *listen, f"--web.listen-address=127.0.0.1:{ports[1]}"]
    source = f"host={place} user=postgres dbname=postgres sslmode=disable"
    exporting = [exporter, f"--web.listen-address=127.0.0.1:{ports[0]}", "--disable-settings-metrics"]
    log = tmp_path / "log"
    running = [started(exporting, log, env={"DATA_SOURCE_NAME": source}), started(server, log)]
    load = ["-n", "-M", "prepared", "-c", "8", "-R", "400", "-T", f"{LENGTH_S:.0f}", "-f", f"{place}/visit.sql", "shop"]
    try:
        time.sleep(8.0)
        begun = dt.datetime.now(dt.UTC)
        running.append(started([*database, *load], log, cwd=place))
        recordings = project / "data/recordings/missing-index"
        run = {"start": begun.isoformat(), "end": (begun + dt.timedelta(seconds=LENGTH_S)).isoformat()}
        base = [{"recording": str(recordings / f"present-{number}.parquet")} for number in (1, 2, 3)]
        params = {
            "base": {"label": "index present"},
            "new": {"label": "index missing"},
            "metrics": "postgresql",
            "calibration": str(project / "data/calibration/postgresql.json"),
            "source": {"kind": "prometheus", "url": f"http://127.0.0.1:{ports[1]}", "step_s": 1.0, "rate_s": 5.0},
            "tests": [{"name": "visits", "type": "bounded", "users": 8, "base": base, "new": run}],
        }
        (tmp_path / "live.yaml").write_text(yaml_text(params))
        monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))

        def restart() -> None:
            running[1].terminate()
            running[1].wait(30)
            time.sleep(2.0)
            running[1] = started(server, log)

        timer = threading.Timer(20.0, restart)
        timer.start()
        seen: list[str] = []
        settings = {"every_s": 4.0, "report": False, "on_stop": f"kill {running[2].pid}"}
        ended = bc.watch(tmp_path / "live.yaml", show=lambda decision, _: seen.append(decision.text), **settings)
        timer.join()
        assert (ended.decision.code, ended.decision.verdict) == ("stop_regression", "regression"), "\n".join(seen)
        assert ended.decision.at_s < LENGTH_S - 4.0
        assert running[2].wait(10) is not None
        kept = bc.read(tmp_path / "data/watch/live/visits/new.watch.parquet", catalogue="postgresql")
        times = kept.find("connections").times  # type: ignore[union-attr]
        assert float(np.diff(times).max()) < 15.0, "what was scraped before and after the restart"
        assert times[0] - begun.timestamp() < 3.0
    finally:
        for process in running:
            process.kill()
            process.wait()
