"""Give changed files to every reader for so many seconds (`make fuzz`); what breaks one is added to tests/corpus.

python benchmarks/fuzz.py 3600
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import fuzzing  # the tests' own parts


def main(seconds: float) -> int:
    """Print how many inputs were tried; 1 where one broke a reader."""
    rng, ends, tried, broken = random.Random(time.time_ns()), time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = fuzzing.right(folder)
        while time.monotonic() < ends:
            kind = rng.choice(sorted(whole))
            contents = fuzzing.changed(whole[kind], rng)
            tried += 1
            try:
                fuzzing.swallow(kind, contents, folder)
            except Exception as error:
                file = fuzzing.CORPUS / f"{kind}-{hashlib.sha256(contents).hexdigest()[:12]}"
                file.write_bytes(contents)
                broken += 1
                print(f"{file}: {type(error).__name__}: {str(error)[:200]!a}")
    print(f"{tried:,} inputs in {seconds:g} s, {broken} of them broke a reader")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0))
