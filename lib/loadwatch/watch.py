"""Watch a test of a params file to its decision, act on it once, and report what was recorded."""

from __future__ import annotations

import datetime as dt
import math
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import requests

from buildcompare.comparison.analysis import with_noise
from buildcompare.comparison.measure import TestView
from buildcompare.comparison.reading import fitted, read_recordings
from buildcompare.config.errors import InputError
from buildcompare.config.params import Comparison, Run, Test, read_params
from buildcompare.config.project import resolve, root, write_files
from buildcompare.config.yaml import yaml_text
from buildcompare.recordings.recording import Recording, utc
from buildcompare.recordings.sources import read
from buildcompare.text.sentences import say
from loadwatch.decide import Code, Decision, decide
from loadwatch.follow import Followed, followed, replayed
from loadwatch.look import Watched, deciding_metrics
from loadwatch.show import widget

WEBHOOK_S = 10.0  # time-out


class Ended(NamedTuple):
    """The end of a watch."""

    decision: Decision
    report: Path | None
    """Folder of the report."""
    outcomes: tuple[str, ...]
    """Outcomes of the command and the webhook, in words."""


def watch(
    comparison: Comparison | str | Path,
    test: str | None = None,
    *,
    replay: bool | str | Path = False,
    speed: float = 600.0,
    every_s: float = 60.0,
    show: Callable[[Decision, TestView | None], object] | Literal["widget"] | None = None,
    on_stop: str = "",
    webhook: str | None = None,
    report: bool = True,
) -> Ended:
    """Watch the last run of the new build, and end as soon as the test may be stopped.

    Parameters
    ----------
    comparison
        A comparison from :func:`read_params`, or the path of its file.
    test
        The test's name; by default the first.
    replay, speed
        Show a finished run as if it went on, `speed` times as fast: the last run of `new`, or this recording.
    every_s
        Seconds between two looks.
    show
        Called at each look with the decision and the comparison behind it (None before both builds are under load);
        ``widget`` shows both in JupyterLab.
    on_stop
        A command that runs once if the test should stop, with the decision as JSON on its standard input.
    webhook
        An address that gets the same JSON, once.
    report
        Publish the usual report of what was recorded.

    Returns
    -------
    Ended
        The last decision, the report's folder, and what became of command and webhook.

    Raises
    ------
    InputError
        If there is no such test, or no run of it that goes on.

    Examples
    --------
    >>> ended = watch("params/v10.4.0-rc1.yaml", "mysql_bounded", replay=True, every_s=900.0, speed=1e9, report=False)
    >>> ended.decision.code.value, round(ended.decision.saved_s / 60)
    ('stop_enough', 16)
    """
    params = comparison if isinstance(comparison, Comparison) else read_params(resolve(comparison))
    chosen = next((each for each in params.tests if test in (None, each.name)), None)
    if chosen is None:
        expected = "one of " + ", ".join(each.name for each in params.tests)
        raise InputError(file=params.file, key="test", expected=expected, found=repr(test))
    command = _checked(on_stop, webhook, every_s=every_s, speed=speed)
    place = root() / "data/watch" / str(params.name) / chosen.name
    watched, running = _watched(params, chosen, replay)
    if running:
        looks = replayed(running, every_s=every_s, speed=speed)
    else:
        shown = {"metrics": deciding_metrics(watched.catalogue), "label_tables": [], "alerts": []}
        only = watched.catalogue.model_copy(update=shown)
        runs = {"new": chosen.new[-1]} | ({"base": chosen.base[-1]} if watched.beside else {})
        files = {side: place / f"{side}.watch.parquet" for side in runs}
        looks = followed([Followed(run, params.source, only, files[side]) for side, run in runs.items()], every_s)
    if show == "widget":
        show = widget()
    for at_s, (recording, *beside), notes in looks:
        seen = replace(watched, base=[*watched.base, *beside]) if beside else watched  # caches its views
        decision, compared = decide(seen, recording, at_s)
        decision = decision.model_copy(update={"notes": notes})
        if show is not None:
            show(decision, compared)
        if decision.code != Code.RUNNING:
            break
    file = place / f"watch-{recording.window[0]:.0f}.json"
    acted = not running and file.exists()  # by a watch that was restarted
    outcomes = _act(decision, file, command, webhook) if decision.stops and not acted else ()
    if not isinstance(replay, bool):
        chosen = chosen.model_copy(update={"new": [*chosen.new[:-1], Run(recording=str(resolve(replay)))]})
    return Ended(decision, _report(params, chosen, decision, recording.window[0], place) if report else None, outcomes)


def _checked(on_stop: str, webhook: str | None, **numbers: float) -> list[str]:
    """Check the settings that are used at the end of a watch; return the parts of the command."""
    for key, number in numbers.items():
        if not 0.0 < number < math.inf:
            raise InputError(file=None, key=key, expected="a number above 0", found=f"{number:g}")
    try:
        command = shlex.split(on_stop)
    except ValueError as error:
        raise InputError(file=None, key="on_stop", expected="a command", found=f"{on_stop} ({error})") from None
    if command and not shutil.which(command[0]):
        raise InputError(file=None, key="on_stop", expected="a program that can be run", found=command[0])
    if webhook and not webhook.startswith(("http://", "https://")):
        raise InputError(file=None, key="webhook", expected="an address with http:// or https://", found=webhook)
    return command


def _watched(params: Comparison, test: Test, replay: bool | str | Path) -> tuple[Watched, Recording | None]:
    """Read the earlier runs, and the recording to replay."""
    last, now = test.new[-1], dt.datetime.now(dt.UTC)
    if not replay and last.window is None:
        expected = "`start` and `end` of a run that still goes on, or --replay"
        raise InputError(file=params.file, key=f"{test.name}.new", expected=expected, found=last.file or "values")
    beside = not replay and (window := test.base[-1].window) is not None and test.base[-1].is_pulled and window[1] > now
    finished = {"base": test.base[:-1] if beside else test.base, "new": test.new if replay is True else test.new[:-1]}
    others = {each.name: each.model_copy(update={"base": [], "new": []}) for each in params.tests}
    wanted = others | {test.name: test.model_copy(update=finished)}
    runs = read_recordings(params.model_copy(update={"tests": [*wanted.values()]}))[test.name]
    every = [*runs["base"], *runs["new"]]
    catalogue, noise = with_noise(*fitted(params, [every]), every)
    running = runs["new"].pop() if replay is True else read(resolve(replay), catalogue=catalogue) if replay else None
    start_s, end_s = running.window if running else [each.timestamp() for each in last.window or ()]
    settings = {"groups": noise.groups, "past": noise.contrasts, "planned_runs": params.planned_runs}
    return Watched(
        test, catalogue, runs["base"], end_s - start_s, runs["new"], params.coordinator,
        (params.base.label, params.new.label), settings, bool(beside),
    ), running  # fmt: skip


def _act(decision: Decision, file: Path, command: list[str], webhook: str | None) -> tuple[str, ...]:
    """Keep the decision in `file`, run the command and call the webhook."""
    text, outcomes, output = decision.model_dump_json(indent=1), list[str](), file.with_name("on-stop.txt")
    write_files({file: text})
    if command:
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            write_files({output: done.stdout + done.stderr})
            outcomes.append(say("watch", "command", command[0], done.returncode, output))
        except OSError as error:
            outcomes.append(say("watch", "command_failed", command[0], error.strerror))
    if webhook:
        headers = {"Content-Type": "application/json"}
        try:
            answer = requests.post(webhook, data=text, headers=headers, timeout=WEBHOOK_S)
            outcomes.append(say("watch", "webhook", answer.status_code))
        except requests.RequestException as error:
            outcomes.append(say("watch", "webhook_failed", type(error).__name__))
    return tuple(outcomes)


def _report(params: Comparison, test: Test, decision: Decision, start_s: float, place: Path) -> Path:
    """Publish a report of what was recorded, with a comment that says why the test was stopped."""
    from buildcompare.report.publish import publish

    data = params.model_dump(mode="json", exclude_defaults=True, exclude={"tests"})
    only = test.model_dump(mode="json", exclude_defaults=True)
    if decision.stops:
        run = {key: value for key, value in only["new"][-1].items() if key not in ("supported_users", "errors")}
        only["new"][-1] = run | {"start": utc(start_s), "end": utc(start_s + decision.at_s)}
        data["comments"] = [say("watch", "comment", decision), *params.comments]
    name = f"{params.name}-{test.name}-watch"
    file = place / f"{name}.yaml"
    write_files({file: yaml_text({**data, "name": name, "tests": [only]})})
    return publish(file).folder
