"""What iostat, mpstat, vmstat and sar print, of the installed version and as written down, and what they do not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.config.errors import InputError

SAR = """\
Linux 6.1.0-18-amd64 (db-1)  03/01/24  _x86_64_  (4 CPU)

11:59:50 PM     CPU     %user     %nice   %system   %iowait    %steal     %idle
11:59:55 PM     all     10.00      0.00      2.00      1.00      0.00     87.00
11:59:55 PM       0     90.00      0.00      2.00      1.00      0.00      7.00
12:00:00 AM     all     20.00      0.00      2.00      1.00      0.00     77.00

11:59:50 PM       DEV       tps     rkB/s     %util
11:59:55 PM       sda     100.5       1.0      3.00
12:00:00 AM       sda     200.5       1.0      4.00
12:00:00 AM       sdb       7.0       1.0      5.00
Average:          all     15.00      0.00      2.00      1.00      0.00     82.00
"""
VMSTAT = """\
procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC
 3  0      0 21333016  56404 2989900    0    0   237  1210  518 1599 70  5 24  0  0 2024-03-01 16:08:08
 4  1      0 21333016  56404 2989900    0    0     0     8  575  152 60  1 39  0  0 2024-03-01 16:08:10
 5  1      0 21333016  56404 2989900    0    0     0     8  575  152 50  1 49  0  0 2024-03-01 16:08:12
"""
DISK = {"disk_device": "vda", "r/s": 1.5, "w/s": 2.5, "util": 30.0}
IOSTAT = {"sysstat": {"hosts": [{"nodename": "x", "date": "03/01/24", "statistics": [
    {"timestamp": f"03/01/2024 04:00:0{i} PM", "avg-cpu": {"user": 1.0 * i, "idle": 90.0}, "disk": [DISK]}
    for i in range(3)
]}]}}  # fmt: skip


def test_sar_with_twelve_hours_midnight_and_two_tables(tmp_path: Path) -> None:
    (tmp_path / "sar.txt").write_text(SAR)
    found = bc.read(tmp_path / "sar.txt")
    user = found.find("sar-user")
    assert user is not None
    assert user.values.tolist() == [10.0, 20.0]  # the rows of single processors are left out
    assert user.times.tolist() == [1709337595.0, 1709337600.0]
    disk = found.find("sar-tps", {"dev": "sda"})
    assert disk is not None
    assert (disk.values.tolist(), disk.times.tolist()) == ([100.5, 200.5], user.times.tolist())
    assert found.find("sar-tps", {"dev": "sdb"}) is not None


def test_vmstat_and_iostat_without_what_they_say_of_the_time_before(tmp_path: Path) -> None:
    (tmp_path / "vmstat.txt").write_text(VMSTAT)
    (tmp_path / "iostat.json").write_text(json.dumps(IOSTAT))
    vmstat, iostat = (bc.read(tmp_path / name, catalogue="pgbench") for name in ("vmstat.txt", "iostat.json"))
    run, reads, user = vmstat.find("vmstat-r"), iostat.find("iostat-r-s", {"device": "vda"}), iostat.find("iostat-user")
    assert (run and run.values.tolist()) == [4.0, 5.0]
    assert (run and run.step_s) == 2.0
    assert (reads and reads.values.tolist()) == [1.5, 1.5]
    assert (user and user.values.tolist()) == [1.0, 2.0]
    assert (user and user.times.tolist()) == [1709308801.0, 1709308802.0]


def test_other_languages_zones_and_several_days(tmp_path: Path) -> None:
    def times(name: str, text: str) -> list[float]:
        (tmp_path / name).write_text(text)
        return bc.read(tmp_path / name).graphs()[0].times.tolist()

    german = (
        "Linux 6.1 (db)\t{}\t_x86_64_\t(4 CPU)\n\n{}     CPU     %user\n{}     all     10,50\n"
        "{}     all     20,25\nDurchschn.:     all     15,00\n"
    )
    expected = [1709337595.0, 1709337600.0]  # 1 March 2024, the last five seconds
    clocks = ("23:59:50", "23:59:55", "00:00:00")
    for date in ("01.03.2024", "2024-03-01", "2024年03月01日"):
        assert times("de.txt", german.format(date, *clocks)) == expected
    for date in ("03/31/24", "31/03/2024"):  # one reading each
        assert times("de.txt", german.format(date, *clocks)) == [1711929595.0, 1711929600.0]
    with pytest.raises(InputError, match=r"line 4: expected a date of one reading .*, found '05/04/26'"):
        times("de.txt", german.format("05/04/26", *clocks))
    other_day = german.format("13/04/26", "07:00:00", "08:00:00", "09:00:00")
    assert times("de.txt", german.format("05/04/26", *clocks) + other_day)[0] == 1775433595.0, "5 April"
    assert times("ja.txt", german.format("2024年03月01日", "23時59分50秒", "23時59分55秒", "00時00分00秒")) == expected
    assert bc.read(tmp_path / "ja.txt").graphs()[0].values.tolist() == [10.5, 20.25]
    both = german.format("2024-03-01", *clocks) + german.format("2024-03-02", "07:00:00", "08:00:00", "09:00:00")
    assert times("days.txt", both) == [*expected, 1709366400.0, 1709370000.0]
    load = [
        {"timestamp": f"{hour % 24:02d}:00:00", "cpu-load": [{"cpu": "all", "idle": 1.0}]} for hour in range(12, 72, 6)
    ]
    three = {"sysstat": {"hosts": [{"date": "03/13/24", "statistics": load}]}}
    assert np.diff(times("mpstat.json", json.dumps(three))).tolist() == [6 * 3600.0] * 9
    zoned = json.dumps(IOSTAT).replace("03/01/2024 04:00:0", "2024-03-01T17:00:0").replace(" PM", "+0100")
    assert times("zoned.json", zoned) == [1709308801.0, 1709308802.0]
    wide = VMSTAT.replace(
        "procs -----------memory----------", "--procs-- -----------------------memory----------------------"
    )
    assert times("wide.txt", wide) == [1709309290.0, 1709309292.0]


@pytest.mark.slow
@pytest.mark.parametrize("iso", [False, True])
def test_the_installed_tools(tmp_path: Path, iso: bool) -> None:
    missing = [tool for tool in ("iostat", "mpstat", "vmstat", "sar") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    asked = {
        "io": "iostat -t -x -o JSON 1 3",
        "mp": "mpstat -P ALL -o JSON 1 2",
        "vm": "vmstat -t -w 1 3" if iso else "vmstat -t 1 3",
        "sar": "sar -u -d 1 2",
    }
    environment = {**os.environ, "LC_ALL": "C", **({"S_TIME_FORMAT": "ISO"} if iso else {})}
    running = {}
    for name, command in asked.items():
        with (tmp_path / name).open("wb") as file:
            running[name] = subprocess.Popen(command.split(), stdout=file, env=environment)
    for name, process in running.items():
        assert process.wait(timeout=30) == 0
        if not iso and time.strftime("%d") <= "12" and name != "vm" and time.strftime("%m") != time.strftime("%d"):
            with pytest.raises(InputError, match="expected a date of one reading"):
                bc.read(tmp_path / name, catalogue="pgbench")
            continue
        found = bc.read(tmp_path / name, catalogue="pgbench")
        assert all(np.isfinite(series.values).all() for series in found.series)
        assert {series.times.size for series in found.graphs()} == {2}
        assert found.duration_s == pytest.approx(1.0, abs=1.0)
        idle = found.find("mpstat-idle")
        assert idle is not None
        assert 0 <= idle.values.min() <= idle.values.max() <= 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VMSTAT.replace(" 2024-03-01 16:08:10", ""), "line 4: expected the time of each sample"),
        (VMSTAT.replace("575  152 60", "575  fast 60"), "line 4: expected 17 numbers, found"),
        (VMSTAT.replace("2024-03-01 16:08:10", "2024-13-01 16:08:10"), "line 4: expected a date and a time"),
        ("\n".join(VMSTAT.splitlines()[:3]), "no sample after the first"),
        (SAR.replace("     77.00", ""), "line 6: expected 7 columns"),
        (json.dumps(IOSTAT).replace('"timestamp"', '"when"'), "statistics[1]: expected the time of each sample"),
        (json.dumps(IOSTAT).replace("30.0", '"much"'), "statistics[1]: expected numbers by their names"),
        ('{"sysstat": {"hosts": []}}', "sysstat.hosts: expected statistics of sysstat"),
    ],
)
def test_malformed_statistics_are_one_line(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError) as caught:
        bc.read(tmp_path / "x", kind="sysstat")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
