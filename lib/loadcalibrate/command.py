"""The command `calibrate`."""

from pathlib import Path
from typing import Annotated

from buildcompare.commandline import argument, option, show
from buildcompare.config.remote import written


def calibrate(
    file: Annotated[Path, argument("FILE", "A file that names groups of repeated runs.")],
    output: Annotated[str, option("--output", "Where the calibration is written: a file, or an address of one.")],
    refresh: Annotated[bool, option("--refresh", "Pull again, even if the samples were pulled before.")] = False,
) -> None:
    """Learn from repeated runs how much two runs of the same build differ."""
    from loadcalibrate.learn import calibrate as learn  # late import: it takes seconds

    with written(output) as here:
        made = learn(file, here, refresh=refresh)
    show(f"{output}: {sum(len(group.runs) for group in made.groups)} runs in {len(made.groups)} groups")
    self_check = "none, as a single group leaves nothing to be judged by."
    if check := made.self_check:
        called = (f"{check[each]['called']} of {check[each]['rows']} {each}" for each in ("metrics", "labels"))
        self_check = f"{' and '.join(called)} of identical pairs called changed."
    show(f"Self-check: {self_check}")
