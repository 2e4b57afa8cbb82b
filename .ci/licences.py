"""List the licence of every package of requirements.lock in docs/licences.md: exit code 1 where one may not be free.

    python .ci/licences.py          compare the page with the packages that are installed
    python .ci/licences.py --write  write the page anew

A package says its licence in its metadata, in one of three ways; of one that says nothing a person read it.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs/licences.md"
HEAD = """\
# Licences of the packages

What `requirements.lock` names, as the packages' own metadata says (`python .ci/licences.py --write`). `make audit`
refuses a licence that is not in the list of `.ci/licences.py`.

| package | licence |
| --- | --- |
"""
FREE = frozenset({
    "0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT",
    "LicenseRef-Public-Domain", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "ZPL-2.1", "Zlib",
})  # fmt: skip
"""Licences (SPDX; BSD: one of them, which its metadata leaves open) under which anybody may use a package as we do."""
NAMES = {
    "2-clause BSD": "BSD-2-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Modified BSD": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PSF": "PSF-2.0",
    "Public Domain": "LicenseRef-Public-Domain",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX names of what older packages write."""
PHRASES = {
    "Neither the name of": "BSD-3-Clause",
    "Redistribution and use in source and binary forms": "BSD-2-Clause",
    "Permission is hereby granted, free of charge": "MIT",
}
"""By what only their texts say: packages that have the whole text for a name."""
BY_HAND = {
    "aiohappyeyeballs": "PSF-2.0", "aiohttp": "Apache-2.0 AND MIT", "aiosignal": "Apache-2.0",
    "appnope": "BSD-2-Clause", "atheris": "Apache-2.0", "axe-playwright-python": "MIT", "colorama": "BSD-3-Clause",
    "frozenlist": "Apache-2.0", "multidict": "Apache-2.0", "propcache": "Apache-2.0", "pywinpty": "MIT",
    "yarl": "Apache-2.0",
}  # fmt: skip
"""Of packages that are on some systems only, or whose metadata say nothing: their licence file, read by a person."""


def main(write: bool) -> int:
    """Compare the page with the lock, or write it; 1 where they differ or a licence is not free."""
    lock = (PROJECT / "requirements.lock").read_text("utf-8")
    names = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", lock, flags=re.MULTILINE)
    page = PAGE.read_text("utf-8") if PAGE.exists() else ""
    known = dict(re.findall(r"^\| ([\w.-]+) \| (.+) \|$", page, flags=re.MULTILINE))
    found = {name: licence_of(name) or BY_HAND.get(name) or known.get(name, "unknown") for name in names}
    if write:
        PAGE.write_text(HEAD + "".join(f"| {name} | {licence} |\n" for name, licence in found.items()), "utf-8")
        known = found
    odd = {name: licence for name, licence in found.items() if not is_free(licence)}
    moved = (found.keys() ^ known.keys()) - {"package", "---"}
    for name, licence in odd.items():
        print(f"{name}: {licence}, which is not in the list of free licences", file=sys.stderr)
    for name in sorted(moved):
        print(f"{name}: docs/licences.md and requirements.lock do not both name it", file=sys.stderr)
    print(f"{len(found)} packages, {len(odd)} licences that are not known to be free")
    return 1 if odd or moved else 0


def is_free(licence: str) -> bool:
    """Whether an SPDX expression leaves a choice of free licences only."""
    parts = [part.strip(" ()") for part in re.split(r" AND ", licence)]
    return all(any(each.strip(" ()") in FREE for each in re.split(r" OR ", part)) for part in parts)


def licence_of(name: str) -> str | None:
    """What the metadata of an installed package say; None where they say nothing."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if expression := said.get("License-Expression"):
        return str(expression)
    classified = [
        line.rpartition(" :: ")[2] for line in said.get_all("Classifier") or () if line.startswith("License ::")
    ]
    classified = [each for each in classified if each != "OSI Approved"]
    text = " ".join(str(said.get("License") or "").split())
    for phrase, licence in PHRASES.items():
        text = licence if phrase in text else text
    told = [NAMES.get(each, each) for each in (text, *classified) if each and len(each) < 80]
    return next((each for each in told if is_free(each) and each != "BSD"), next(iter(told), None))


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
