"""Statistics of iostat, mpstat, sar and vmstat, of the installed version and as written down, with a sure time only."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
import fuzzing
from support import sure

TWO_SAMPLES = fuzzing.seed("sysstat-vmstat").decode()
VMSTAT = TWO_SAMPLES + TWO_SAMPLES.splitlines(keepends=True)[-1].replace(":10", ":12").replace(" 4  1", " 5  1")
IOSTAT, SADF = (json.loads(fuzzing.seed(f"sysstat-{name}"))["sysstat"]["hosts"][0] for name in ("iostat", "sadf"))


def read(tmp_path: Path, contents: str | dict[str, Any]) -> bc.Recording:
    text = contents if isinstance(contents, str) else json.dumps({"sysstat": {"hosts": [contents]}})
    (tmp_path / "x").write_text(text)
    return bc.read(tmp_path / "x", catalogue="pgbench")


def values(recording: bc.Recording, metric: str, **labels: str) -> list[float]:
    return sure(recording.find(metric, labels)).values.tolist()


def test_vmstat_and_iostat_without_their_mean_since_the_machine_started(tmp_path: Path) -> None:
    vmstat = read(tmp_path, VMSTAT)
    assert values(vmstat, "vmstat-r") == [4.0, 5.0]
    assert vmstat.window == (1709309290.0, 1709309292.0)
    wide = "--procs-- -----------------------memory----------------------"
    assert read(tmp_path, VMSTAT.replace("procs -----------memory----------", wide)).window == vmstat.window
    iostat = read(tmp_path, IOSTAT)
    assert (values(iostat, "iostat-r-s", device="vda"), values(iostat, "iostat-user")) == ([1.5, 1.5], [1.0, 2.0])
    assert iostat.window == (1709308801.0, 1709308802.0)


def test_sar_by_sadf_over_midnight(tmp_path: Path) -> None:
    found = read(tmp_path, SADF)
    assert values(found, "mpstat-idle") == [10.0, 20.0]  # the catalogue's metric; single processors are left out
    assert values(found, "sar-tps", device="sda") == [100.5, 100.5]
    assert values(found, "sar-tps", device="sdb") == [7.0, 7.0]
    assert values(found, "sar-rxkb", iface="eth0") == [5.5, 5.5]
    assert found.window == (1709337595.0, 1709337600.0)


def test_zones_and_clocks_of_several_days(tmp_path: Path) -> None:
    zoned = json.dumps(IOSTAT).replace("03/01/2024 04:00:0", "2024-03-01T17:00:0").replace(" PM", "+0100")
    assert read(tmp_path, json.loads(zoned)).window == (1709308801.0, 1709308802.0)
    loads = [{"timestamp": f"{hour % 24:02d}:00:00", "cpu-load": [{"cpu": "all", "idle": 1}]} for hour in (12, 30, 50)]
    for date in ("03/13/24", "13/03/2024", "2024-03-13"):
        times = read(tmp_path, {"date": date, "statistics": loads}).series[0].times
        assert (times - 1710331200.0).tolist() == [0.0, 18 * 3600.0, 38 * 3600.0]


@pytest.mark.slow
@pytest.mark.parametrize("iso", [False, True])
def test_the_installed_tools(tmp_path: Path, iso: bool) -> None:
    missing = [tool for tool in ("iostat", "mpstat", "vmstat", "sar", "sadf") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    commands = {
        "io": "iostat -t -x -o JSON 1 3",
        "mp": "mpstat -P ALL -o JSON 1 2",
        "vm": "vmstat -t -w 1 3" if iso else "vmstat -t 1 3",
        "sar": f"sar -A -o {tmp_path}/sa 1 2",
    }
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", **({"S_TIME_FORMAT": "ISO"} if iso else {})}
    running = {}
    for name, command in commands.items():
        with (tmp_path / name).open("wb") as file:
            running[name] = subprocess.Popen(command.split(), stdout=file, env=environment)
    for name, process in running.items():
        assert process.wait(timeout=30) == 0
        if name == "sar":
            sadf = ["sadf", "-j", tmp_path / "sa", "--", "-u", "-d", "-r"]
            (tmp_path / name).write_bytes(subprocess.run(sadf, capture_output=True, check=True).stdout)
        day, month = time.strftime("%d %m").split()
        if not iso and day <= "12" and day != month and name in ("io", "mp"):
            with pytest.raises(bc.InputError, match="expected a date with one meaning"):
                bc.read(tmp_path / name, catalogue="pgbench")
            continue
        found = bc.read(tmp_path / name, catalogue="pgbench")
        assert all(np.isfinite(series.values).all() for series in found.series)
        assert {series.times.size for series in found.graphs()} == {2}
        assert found.duration_s == pytest.approx(1.0, abs=1.0)
        idle = values(found, "mpstat-idle")
        assert 0 <= min(idle) <= max(idle) <= 100


SAR_TEXT = "Linux 6.1.0-18-amd64 (db-1)  03/01/24  _x86_64_  (4 CPU)\n\n11:59:50 PM     CPU     %user     %idle\n"
LOCAL = json.dumps(SADF).replace('"utc": 1', '"utc": 0')


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (VMSTAT.replace(" 2024-03-01 16:08:10", ""), "line 4: expected the date and time of each sample"),
        (VMSTAT.replace("575  152 60", "575  1_52 60"), "line 4: expected 17 numbers, found"),
        (VMSTAT.replace("UTC", "EST"), "line 2: expected times in UTC (TZ=UTC vmstat -t), found EST"),
        ("\n".join(VMSTAT.splitlines()[:3]), "no sample after the first"),
        (SAR_TEXT, "line 1: expected statistics as JSON (iostat -t -x -o JSON 5; mpstat -o JSON 5; sadf -j FILE"),
        (json.loads(LOCAL), "statistics[0]: expected times in UTC (sadf -j without -t or -T), found '23:59:55'"),
        (json.loads(json.dumps(IOSTAT).replace('"timestamp"', '"when"')), "statistics[1]: expected"),
        (json.loads(json.dumps(IOSTAT).replace("30.0", '"1_0"')), "statistics[1]: expected numbers by their names"),
        ('{"sysstat": {"hosts": []}}', "sysstat.hosts: expected statistics"),
    ],
)
def test_malformed_statistics_are_one_line(tmp_path: Path, contents: str | dict[str, Any], expected: str) -> None:
    with pytest.raises(bc.InputError, match=re.escape(expected)):
        read(tmp_path, contents)
