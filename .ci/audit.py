"""Ask the OSV database for advisories on every package of requirements.lock: exit code 0 none, 1 some, 4 not asked."""

import json
import re
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path

DATABASE = "https://api.osv.dev/v1/querybatch"


def main(database: str = DATABASE) -> int:
    """Print an advisory a line, or plainly that nothing was checked."""
    lock = Path(__file__).resolve().parents[1].joinpath("requirements.lock").read_text("utf-8")
    pins = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ \\;]+)", lock, flags=re.MULTILINE)
    asked = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in pins]
    body = json.dumps({"queries": asked}).encode()
    request = urllib.request.Request(database, body, {"Content-Type": "application/json"})  # noqa: S310  # https
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            results = json.load(answer)["results"]
        if any("next_page_token" in result for result in results):
            raise ValueError("only a part of the answer")
        told = zip(pins, results, strict=True)
        found = [(*pin, each["id"]) for pin, result in told for each in result.get("vulns", [])]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"make audit: nothing was checked: {database} could not be asked ({error})", file=sys.stderr)
        return 4
    for name, version, advisory in found:
        print(f"{name} {version}: https://osv.dev/vulnerability/{advisory}")
    print(f"{len(pins)} packages, {len(found)} advisories")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
