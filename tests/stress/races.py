"""Publish and record from many processes at once: is anything lost?

    python tests/stress/races.py 5000

Eight processes race. Half of the rounds publish four reports, while somebody puts a file of their own into one of them;
the other half record in one ledger. Prints what should be there, what is there, and what is left over.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

RACERS, REPORTS = 8, 4
PUBLISHING = """
import pathlib, random, sys
from buildcompare.report import publication
folder, racer, rounds = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(rounds):
    report = folder / f"r{random.randrange(REPORTS)}"
    (folder.parent / f"{racer}-{i}").write_text("mine")
    while True:
        try:
            (folder.parent / f"{racer}-{i}").rename(report / f"{racer}-{i}")
            break
        except FileNotFoundError:
            pass  # its first is not there yet
    with publication.staged(report) as new:
        (new / "results.json").write_text('{"schema_version": 1, "comparison": "x", "complete": true}')
"""
RECORDING = """
import pathlib, sys
from buildcompare.history.ledger import Entry, record
folder, racer, rounds = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(rounds):
    name = f"{racer}-{i}"
    known = {"name": name, "base": {"label": f"{name}-a"}, "new": {"label": f"{name}-b"}, "source": "report"}
    test = {"name": "t", "type": "unbounded", "supported_users": {"base": 900.0 + i, "new": 901.0 + i}}
    record(folder, [Entry.model_validate({**known, "tests": [test], "position": 1})], at_end=True)
"""


def main(rounds: int, folder: Path) -> int:
    reports, ledger, each = folder / "reports", folder / "ledger", rounds // 2 // RACERS
    for i in range(REPORTS):
        (reports / f"r{i}").mkdir(parents=True)
        (reports / f"r{i}/results.json").write_text('{"schema_version": 1, "comparison": "x", "complete": true}')
    raced(PUBLISHING.replace("REPORTS", str(REPORTS)), reports, each)
    found = len([*reports.glob("r*/p*")])
    left = [*folder.rglob(".*"), *folder.glob("p*")]
    print(f"{each * RACERS} publications: {found} of {each * RACERS} files of others are there, {len(left)} left over")
    lost = each * RACERS - found + len(left)
    raced(RECORDING, ledger, each)
    from buildcompare.history.ledger import read_ledger

    entries = read_ledger(ledger).entries
    places = [entry.position for entry in entries]
    whole = len({*places} & {*range(1, each * RACERS + 1)})
    left = [*ledger.rglob(".*")]
    print(f"{each * RACERS} records: {len(entries)} entries at {whole} different places, {len(left)} left over")
    return 1 if lost or whole < each * RACERS or left else 0


def raced(program: str, folder: Path, rounds: int) -> None:
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [[sys.executable, "-c", program, str(folder), f"p{i}", str(rounds)] for i in range(RACERS)]
    racers = [subprocess.Popen(each) for each in arguments]
    codes = [racer.wait() for racer in racers]
    print(f"{RACERS} processes ended with {sorted({*codes})} after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000, Path(place)))
