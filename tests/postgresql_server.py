"""A server of the installed PostgreSQL, on a socket of its own."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def database() -> Iterator[list[str]]:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if not folders or not shutil.which("pgbench"):
        pytest.skip("no PostgreSQL server is installed")
    place = Path(tempfile.mkdtemp(prefix="pg-"))
    runuser = shutil.which("runuser") or "/usr/sbin/runuser"  # `su` leaves /usr/sbin out of the PATH
    own = [runuser, "-u", "postgres", "--"] if Path("/proc/self").stat().st_uid == 0 else []
    if own:
        shutil.chown(place, "postgres")

    def run(*command: str) -> None:
        subprocess.run([*own, *command], check=True, capture_output=True, cwd=place, timeout=60)

    run(f"{folders[-1]}/initdb", "-D", "d", "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-k {place} -c listen_addresses='' -c fsync=off"
    try:
        run(f"{folders[-1]}/pg_ctl", "-D", "d", "-o", options, "-l", "log", "-w", "start")
        where = ["-h", str(place), "-U", "postgres"]
        run("pgbench", *where, "-i", "-q", "postgres")
        yield [*own, "pgbench", *where]
    finally:
        subprocess.run([*own, f"{folders[-1]}/pg_ctl", "-D", "d", "-m", "immediate", "stop"], cwd=place, check=False)
        shutil.rmtree(place, ignore_errors=True)
