"""Give changed files to every reader for so many seconds of CPU (`make fuzz`); what breaks one is kept in tests/corpus.

    python tests/stress/fuzz.py 7200

Each kind of file is read in its own process. With atheris (CPython 3.11 on Linux) coverage guides the inputs; without
it they change at random. Prints for each kind, and in all: inputs, CPU seconds, what broke (a traceback, an abort, over
10 CPU seconds or 1 GB for one input), CPU seconds of the slowest input, and the largest memory in MB with children.
"""

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROUND_S = 120.0
"""CPU seconds of one process: then it is another kind's turn, and memory begins anew."""
MOST_BYTES = 1_000_000_000
WAITS_S = 600.0
"""A reader that waits for so long, without using a CPU, hangs; shorter, and a machine that stood still would count."""
LONGEST = 20_000
_ROOMS = ("recordings", "config", "history", "calibration", "profiles", "results", "report.markdown")
READERS = (
    *(f"buildcompare.{room}" for room in _ROOMS), "investigation", "labmatrix.experiment", "loadcalibrate",
    "loadexport", "loadindex", "loadfiles",
)  # fmt: skip
"""Of our modules, those whose lines guide the fuzzer."""
COLUMNS = ("inputs", "cpu_s", "broken", "slowest_s", "peak_mb")


def main(seconds: float, kinds: list[str], corpus: Path) -> int:
    print(f"{'kind':12} {'guided':>6} " + " ".join(f"{each:>10}" for each in COLUMNS), flush=True)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        used = 0.0
        while used < seconds:
            each_s = min(ROUND_S, (seconds - used) / len(kinds) + 1.0)
            for kind in kinds:
                figures = _one(kind, each_s, Path(name), corpus)
                used += figures["cpu_s"]
                sums = found.setdefault(kind, dict.fromkeys(figures, 0.0))
                for key, value in figures.items():
                    added = key in ("inputs", "cpu_s", "broken")
                    sums[key] = sums[key] + value if added else max(sums[key], value)
                _print(kind, found[kind])
    whole = {key: max(each[key] for each in found.values()) for key in ("guided", "slowest_s", "peak_mb")}
    whole |= {key: sum(each[key] for each in found.values()) for key in ("inputs", "cpu_s", "broken")}
    _print("all", whole)
    return 1 if whole["broken"] else 0


def _print(kind: str, figures: dict[str, float]) -> None:
    numbers = " ".join(
        f"{figures[each]:10.2f}" if each.endswith("_s") else f"{figures[each]:10,.0f}" for each in COLUMNS
    )
    print(f"{kind:12} {'yes' if figures['guided'] else 'no':>6} {numbers}", flush=True)


def _one(kind: str, cpu_s: float, place: Path, corpus: Path) -> dict[str, float]:
    sums = dict.fromkeys(("guided", *COLUMNS), 0.0)
    while sums["cpu_s"] < cpu_s:
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=place))
        seen = place / f"seen-{kind}"  # what reached new lines guides the next process too
        seen.mkdir(exist_ok=True)
        asked = {"kind": kind, "cpu_s": cpu_s - sums["cpu_s"], "folder": str(folder), "seen": str(seen)}
        asked["corpus"] = str(corpus)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([sys.executable, __file__, "--child", json.dumps(asked)], stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        sums["cpu_s"] += max(usage.ru_utime + usage.ru_stime, 0.1)
        with contextlib.suppress(OSError, ValueError):
            figures = json.loads((folder / "figures").read_text("utf-8"))
            for key in ("inputs", "broken"):
                sums[key] += figures[key]
            for key in ("slowest_s", "peak_mb", "guided"):
                sums[key] = max(sums[key], figures[key])
        if process.returncode:
            said = (folder / "log").read_text("utf-8", "replace")[-1500:]
            kept = _keep(kind, (folder / "last").read_bytes(), corpus) if (folder / "last").exists() else None
            print(f"{kept}: the process ended with {process.returncode}\n{said}", flush=True)
            sums["broken"] += 1
            if kept is None:
                break
        shutil.rmtree(folder)
    return sums


def _keep(kind: str, contents: bytes, corpus: Path) -> Path:
    file = corpus / f"{kind}-{hashlib.sha256(contents).hexdigest()[:12]}"
    file.write_bytes(contents)
    return file


class Child:
    def __init__(self, fuzzing: Any, asked: dict[str, Any], *, guided: bool) -> None:
        self.fuzzing, self.kind, self.folder = fuzzing, asked["kind"], Path(asked["folder"])
        self.cpu_s, self.corpus = asked["cpu_s"], Path(asked["corpus"])
        (self.folder / "files").mkdir()
        self.figures = {"guided": float(guided), "inputs": 0, "broken": 0, "slowest_s": 0.0, "peak_mb": 0.0}
        self.known: set[str] = set()
        self.last = self.folder / "last"

    def read(self, contents: bytes) -> None:
        self.last.write_bytes(contents)  # an abort leaves nothing else
        faulthandler.dump_traceback_later(WAITS_S, exit=True)
        signal.setitimer(signal.ITIMER_PROF, 2 * self.fuzzing.HANGS_S)
        started, fault, where = self.fuzzing.cpu_s(), "", ""
        try:
            self.fuzzing.swallow(self.kind, contents, self.folder / "files")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} {place.filename}:{place.lineno}"
            fault = f"{where}: {str(error)[:200]!a}\n{''.join(traceback.format_exception(error))[-3000:]}"
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        peaks = [resource.getrusage(who).ru_maxrss / 1e3 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        figures = self.figures
        figures["inputs"] += 1
        figures["slowest_s"] = max(figures["slowest_s"], self.fuzzing.cpu_s() - started)
        if max(peaks) > MOST_BYTES / 1e6 >= figures["peak_mb"]:
            where, fault = "memory", f"memory: {max(peaks):.0f} MB"
        figures["peak_mb"] = max(*peaks, figures["peak_mb"])
        if fault and where not in self.known:
            self.known.add(where)
            figures["broken"] += 1
            self._say(f"{_keep(self.kind, contents, self.corpus)}: {fault}")
        used = os.times()
        if used.user + used.system + used.children_user + used.children_system > self.cpu_s:
            (self.folder / "figures").write_text(json.dumps(figures), "utf-8")
            os._exit(0)

    def _say(self, text: str) -> None:
        with (self.corpus / "faults.txt").open("a", encoding="utf-8") as log:
            log.write(text + "\n")


def child(asked: dict[str, Any]) -> None:
    try:
        import atheris
    except ImportError:
        atheris = None
    with atheris.instrument_imports(include=[*READERS]) if atheris else contextlib.nullcontext():
        import fuzzing
    faulthandler.register(signal.SIGPROF, chain=True)  # says where the CPU seconds went, and ends the process
    reader = Child(fuzzing, asked, guided=atheris is not None)
    whole = fuzzing.right(reader.folder)[asked["kind"]]
    whole += [file.read_bytes() for file in fuzzing.CORPUS.glob(f"{asked['kind']}-*")]
    rng = random.Random()
    if atheris is None:
        while True:
            reader.read(fuzzing.changed(rng.choice(whole), rng))

    def mutate(contents: bytes, longest: int, seed: int) -> bytes:
        own = random.Random(seed)
        if own.random() < 0.5:
            with contextlib.suppress(Exception):  # an error here would end the process
                return bytes(fuzzing.changed(contents, own)[:longest])
        return bytes(atheris.Mutate(contents, longest))

    seeds = reader.folder / "seeds"
    seeds.mkdir()
    for i, contents in enumerate(whole):
        (seeds / str(i)).write_bytes(contents)
    options = [f"-max_len={LONGEST}", "-rss_limit_mb=0", "-timeout=600", "-print_final_stats=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, asked["seen"], str(seeds)], reader.read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        import fuzzing

        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("seconds", nargs="?", type=float, default=600.0)
        parser.add_argument("--kinds", nargs="*", default=[*fuzzing.READERS])
        parser.add_argument("--corpus", type=Path, default=fuzzing.CORPUS)
        given = parser.parse_args()
        sys.exit(main(given.seconds, given.kinds, given.corpus))
