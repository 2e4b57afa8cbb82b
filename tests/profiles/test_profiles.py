"""Profiles: what is read of each format, which frames are said to have grown, and the flame graph in a real browser."""

import contextlib
import gzip
import itertools
import multiprocessing
import random
import re
import resource
import shutil
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import buildcompare as bc
from buildcompare.config.params import check_params
from buildcompare.profiles.compare import compare_profiles, frame_shares, mean_stacks
from buildcompare.profiles.stacks import Profile, read_profile
from buildcompare.report import markdown
from buildcompare.results import Finding
from buildcompare.results.codes import FindingKind, Pair, Side
from conftest import BrowserThread
from prometheus_server import run_prometheus
from support import small_params

RECORDED = Path(__file__).parents[1] / "recorded_profiles"
"""Of py-spy: two versions of one program, three runs each; `validate` of the new one does three times as much."""


def recorded(side: Side) -> list[Profile]:
    return [read_profile(str(RECORDED / f"{side}-{i}.folded")) for i in (1, 2, 3)]


def of_text(folder: Path, text: str | bytes) -> Profile:
    file = folder / "x.folded"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_profile(str(file))


def test_folded_stacks_of_each_profiler_are_read(tmp_path: Path) -> None:
    perf = "postgres;main;ExecScan 12\npostgres;main;[unknown] 3\n\n"
    scan, unknown = ("postgres", "main", "ExecScan"), ("postgres", "main", "[unknown]")
    assert of_text(tmp_path, perf).stacks == {scan: 12, unknown: 3}
    java = "java/lang/Thread.run;org/App.get 5\njava/lang/Thread.run;org/App.get 2\n"
    assert of_text(tmp_path, gzip.compress(java.encode())).stacks == {("java/lang/Thread.run", "org/App.get"): 7}
    python = "<module> (app.py:3);run (app.py:12) 4\n<module> (app.py:9);run (app.py:14) 1\n"
    found = of_text(tmp_path, python)
    assert found.stacks == {("<module> (app.py)", "run (app.py)"): 5}, "lines move with every change of a file"
    assert found.samples == 5
    assert sum(profile.weight for profile in recorded("base")) > 600


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("main;run 5\nmain;run\n", "line 2: expected frames joined by ';', a space and a whole number"),
        ("main;run -5\n", "line 1: expected frames"), ("main;run 5 7\n", "line 1: expected frames"),
        ("main;run 0\n", "expected a profile: folded stacks, or pprof, found no samples"),
        ("", "found an empty file"),
        (";".join(["f"] * 1001) + " 1\n", "line 1: expected at most 1,000 frames in a stack, found 1,001"),
        (b"\x00\x01\x02\x03", "expected a profile: folded stacks, or pprof"),
        (b"\x0a\xff\xff\x01abc", "found a field beyond the end"),
        (b"\xff" * 20 + b"\x01", "found a number of more than 64 bits"),
        (b"\x12\x04\x0a\x02\x01\x02", "expected a profile"),  # a sample of locations that are not there
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(bc.InputError, match=rf"x\.folded.*{said}"):
        of_text(tmp_path, text)


def ask(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["allocs", "profile?seconds=1"])
def test_pprof_of_a_real_server_is_read_as_go_reads_it(tmp_path: Path, kind: str) -> None:
    go = shutil.which("go", path=f"{Path('/usr/local/go/bin')}:/usr/bin:/bin")
    if go is None:
        pytest.skip("no go to compare with")
    file = tmp_path / "x.pb.gz"
    with run_prometheus(tmp_path, []) as url:
        until = time.monotonic() + 4
        with ThreadPoolExecutor(1) as pool:  # something to do, and to allocate
            asked = pool.submit(ask, f"{url}/debug/pprof/{kind}")
            while not asked.done() and time.monotonic() < until:
                ask(f"{url}/metrics")
            file.write_bytes(asked.result())
    own = read_profile(str(file))
    raw = subprocess.run([go, "tool", "pprof", "-raw", str(file)], check=True, capture_output=True, text=True).stdout
    kinds = raw.partition("Samples:\n")[2].partition("\n")[0].split()
    chosen = next((i for i, name in enumerate(kinds) if name.endswith("[dflt]")), len(kinds) - 1)
    samples, _, rest = raw.partition("Samples:\n")[2].partition("Locations\n")
    functions = defaultdict(list)
    for line in rest.partition("Mappings\n")[0].splitlines():
        located = re.match(r" *(\d+): 0x[0-9a-f]+ M=\d+ (.*?) \S*:\d+", line)
        inlined = re.match(r" {10,}(.*?) \S*:\d+", line)
        if located:
            number = int(located[1])
            functions[number].append(located[2])
        elif inlined:
            functions[number].append(inlined[1])
    expected: dict[tuple[str, ...], float] = defaultdict(float)
    for line in samples.splitlines()[1:]:
        found = re.match(r" *([\d ]+): ([\d ]+)$", line)
        if found and (value := int(found[1].split()[chosen])):
            names = [name for each in found[2].split() for name in functions[int(each)]]
            expected[tuple(reversed(names))] += value
    assert len(expected) > 1
    assert own.stacks == dict(expected)


def test_shares_add_up_and_recursion_counts_once() -> None:
    profile = Profile({("main", "walk", "walk", "walk"): 3.0, ("main", "sum"): 1.0}, 4)
    assert frame_shares(profile, own=True) == {"walk": 0.75, "sum": 0.25}
    assert frame_shares(profile, own=False) == {"main": 1.0, "walk": 0.75, "sum": 0.25}
    assert mean_stacks([profile, Profile({("main", "sum"): 10.0}, 10)]) == {
        ("main", "walk", "walk", "walk"): 0.375,
        ("main", "sum"): 0.625,
    }


def test_the_frame_that_grew_is_found_in_real_profiles() -> None:
    found = compare_profiles(Pair.of(recorded))
    assert (found.runs, found.own[0].frame) == (Pair(3, 3), "validate.<locals>.<genexpr> (server.py)")
    assert found.total[0].frame == "validate (server.py)"
    assert found.total[0].points > 15
    assert (found.total[0].p_adjusted or 1.0) < 0.05
    assert 0 < (found.total[0].noise_share or 1.0) < 0.5
    frames = [row.frame for row in found.total]
    assert "handle (server.py)" not in frames[:3], "what grew merely by what it calls is not told"
    alone = compare_profiles(Pair(recorded("base")[:1], recorded("new")[:1]))
    assert {row.noise_points for row in alone.own} == {None}, "one profile of each build: nobody knows the noise"


@pytest.mark.untraced
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_profiles_of_one_build_rarely_have_frames_that_grew(spread: float) -> None:
    rng = np.random.default_rng(2000)  # the settings were chosen on others
    wrong, loud, found = 0, 0, 0
    shares = np.array([0.4, 0.2, 0.1, *[0.3 / 27] * 27])
    for _ in range(300):
        profiles = []
        for _ in range(6):
            own = shares * np.exp(rng.normal(0, spread, shares.size))
            counts = rng.multinomial(1000, own / own.sum())
            stacks = {("main", f"f{i}"): float(count) for i, count in enumerate(counts) if count}
            profiles.append(Profile(stacks, 1000))
        judged = compare_profiles(Pair(profiles[:3], profiles[3:]))
        wrong += any((row.p_adjusted or 1.0) < 0.05 for row in judged.own)
        loud += sum(abs(row.points) > (row.noise_points or 0.0) for row in judged.own)
        found += len(judged.own)
    assert wrong <= 0.07 * 300
    assert 0 < loud <= 0.065 * found


MOST_MB, MOST_TIMES, LARGEST = 200.0, 15, 32_000_000
HEAD = b"\x0a\x04\x08\x01\x10\x02" + b"\x32\x00\x32\x03cpu\x32\x02ns\x32\x04main" + b"\x2a\x04\x08\x01\x10\x03"


def varint(value: int) -> bytes:
    low = bytes([value & 0x7F | 0x80 * (value > 0x7F)])
    return low + varint(value >> 7) if value > 0x7F else low


def message(number: int, contents: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def location(number: int, lines: int) -> bytes:
    return message(4, b"\x08" + varint(number) + message(4, b"\x08\x01") * lines)


def sample(*locations: int, times: int = 1) -> bytes:
    return message(2, message(1, b"".join(map(varint, locations)) * times) + message(2, b"\x01"))


def repeated(part: Callable[[int], bytes], most: int, start: bytes = b"") -> bytes:
    parts, size = [start], len(start)
    for i in range(most):
        parts.append(part(i + 1))
        size += len(parts[-1])
        if size > LARGEST:
            return b"".join(parts[:-1])
    return b"".join(parts)


SHAPES: dict[str, Callable[[random.Random], bytes]] = {
    "one location of many lines, many times": lambda rng: (
        HEAD + location(1, rng.randint(500, 20_000)) + sample(1, times=rng.randint(500, 20_000))
    ),
    "one deep location in many samples": lambda rng: (
        HEAD + location(1, rng.randint(100, 1000)) + sample(1) * rng.choice((1000, 1_000_000))
    ),
    "one deep location in many different stacks": lambda rng: repeated(
        lambda i: location(i, 1) + sample(10**6, i), rng.choice((3000, 60_000)), HEAD + location(10**6, 900)
    ),
    "long samples": lambda rng: HEAD + location(1, 1) + sample(1, times=rng.randint(10**6, 3 * 10**7)),
    "long samples, not packed": lambda rng: HEAD + location(1, 1) + (
        message(2, b"\x08\x01" * rng.randint(10**5, 10**7) + message(2, b"\x01"))
    ),
    "many samples": lambda rng: HEAD + location(1, 1) + sample(1) * rng.randint(10**5, 3 * 10**6),
    "many texts": lambda rng: HEAD + b"\x32\x02aa" * rng.randint(10**5, 8 * 10**6) + location(1, 1) + sample(1),
    "many empty fields": lambda rng: HEAD + b"\x1a\x00" * rng.randint(10**6, 15 * 10**6) + location(1, 1) + sample(1),
    "many fields of a location": lambda rng: HEAD + message(4, b"\x08\x01" * rng.randint(10**6, 15 * 10**6)),
    "different stacks": lambda rng: repeated(lambda i: b"main;f%d;g 1\n" % i, rng.choice((150_000, 2_000_000))),
    "one stack": lambda rng: b"main;f (a.py:1);g 1\n" * rng.randint(10**5, 16 * 10**5),
    "deep stacks": lambda rng: repeated(lambda i: b"f;" * rng.randint(500, 1000) + b"%d 1\n" % i, 50_000),
    "one line": lambda rng: b";" * rng.randint(10**6, 31 * 10**6) + b" 1\n",
    "names of one letter": lambda rng: repeated(lambda i: b"%d;%d (a:%d) 1\n" % (i, -i, i), 190_000),
}  # fmt: skip


def taken(file: Path, pipe: object) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with contextlib.suppress(bc.InputError):
        read_profile(str(file))
    mb, read = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3, time.process_time()
    lines = SHAPES["names of one letter"](random.Random(0)).splitlines()
    made = time.process_time()
    _ = {tuple(line.rpartition(b" ")[0].decode().split(";")) for line in lines}
    pipe.send((read - started, mb, time.process_time() - made))  # type: ignore[attr-defined]


def cost(contents: bytes, folder: Path) -> float:
    file = folder / "x.profile"
    file.write_bytes(contents)
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(target=taken, args=(file, there))
    process.start()
    cpu_s, mb, plain_s = here.recv()
    process.join()
    assert mb < MOST_MB
    return float(cpu_s / plain_s)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_small_file_takes_little(shape: str, tmp_path: Path) -> None:
    contents = SHAPES[shape](random.Random(shape))
    assert any(cost(contents, tmp_path) < MOST_TIMES for _ in range(3)), "best of three: other work disturbs"


Made = tuple[Path, list[Finding]]
HOSTILE = (
    "<img src=x onerror=alert(1)>", "</title><script>alert(2)</script>", '"onmouseover="alert(3)', "{{ 7 * 7 }}",
    "</svg><h1>mine</h1>", "a" * 3000,
)  # fmt: skip


def page_with(folder: Path, profiles: dict[str, list[str]]) -> Made:
    params = small_params(folder / "data")
    params["tests"] = params["tests"][:1]
    params["tests"][0]["profiles"] = profiles
    result = bc.compare(check_params(params))
    result.to_html(str(folder / "report.html"))
    (folder / "README.md").write_text(markdown.render(result.results, []), "utf-8")
    return folder / "report.html", result.results.findings


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("flame")
    return page_with(folder, {s: [str(RECORDED / f"{s}-{i}.folded") for i in (1, 2, 3)] for s in ("base", "new")})


WIDTHS = """() => {
  const whole = document.querySelector("svg.flame").getBoundingClientRect();
  return [...document.querySelectorAll("svg.flame svg")].filter((each) => each.style.display !== "none").map((each) => {
    const box = each.querySelector("rect").getBoundingClientRect(), name = each.querySelector("text").textContent;
    return [name, Number(each.dataset.depth), box.left - whole.left, box.width, whole.width];
  });
}"""


def expected_widths(side: Side) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], float] = {("all samples", 0): 1.0}
    for stack, share in mean_stacks(recorded(side)).items():
        for depth, frame in enumerate(stack, start=1):
            found[frame, depth] = found.get((frame, depth), 0.0) + share
    return found


def test_widths_are_shares_and_no_frame_covers_another(browser: BrowserThread, page: Made) -> None:
    def both(shown: Any) -> Any:
        new = shown.evaluate(WIDTHS)
        shown.locator("build-flame select").select_option("base")
        return {"new": new, "base": shown.evaluate(WIDTHS)}

    # Without JavaScript there is the picture alone; the browser's own tools may still ask it.
    picture = {"new": browser.on_page(page[0], lambda shown: shown.evaluate(WIDTHS), java_script_enabled=False)}
    for side, frames in [*browser.on_page(page[0], both).items(), *picture.items()]:
        shares: dict[tuple[str, int], float] = {}
        for name, depth, _, width, whole in frames:
            shares[name, depth] = shares.get((name, depth), 0.0) + width / whole
        large = {frame: share for frame, share in expected_widths(side).items() if share >= 0.002}
        assert len(large) > 10
        assert {frame: shares[frame] for frame in large} == pytest.approx(large, abs=2e-4)
        for depth in {frame[1] for frame in frames}:
            row = sorted((left, left + width) for _, each, left, width, _ in frames if each == depth)
            assert all(end <= start + 0.01 for (_, end), (start, _) in itertools.pairwise(row))
            assert row[-1][1] <= frames[0][4] + 0.01


def test_it_answers_to_keys_and_words(browser: BrowserThread, page: Made) -> None:
    def task(shown: Any) -> None:
        hidden = "all => all.filter((each) => each.style.display === 'none').length"
        frames, said = shown.locator("build-flame svg.flame > svg"), shown.locator("build-flame [role=status]")
        only_base = frames.evaluate_all(hidden)
        shown.locator("build-flame input").fill("validate (")
        assert said.inner_text().startswith("1 frames, 70.7 % of the samples")
        assert shown.locator("build-flame .match").count() == 1
        shown.locator("build-flame input").fill("no such frame")
        assert said.inner_text() == "0 frames, 0.0 % of the samples"
        shown.locator("build-flame button").focus()
        shown.keyboard.press("Tab")  # the root, the only stop
        focused = "document.activeElement.querySelector('text').textContent"
        assert shown.evaluate(focused) == "all samples"
        for _ in range(3):
            shown.keyboard.press("ArrowDown")
        name = shown.evaluate(focused)
        assert said.inner_text().startswith(f"{name}: ")
        shown.keyboard.press("ArrowRight")
        assert shown.evaluate(focused) != name
        shown.keyboard.press("Enter")
        zoomed = shown.evaluate("document.activeElement.getBoundingClientRect().width")
        whole = shown.evaluate("document.querySelector('svg.flame').getBoundingClientRect().width")
        assert zoomed == pytest.approx(whole, abs=3)
        assert frames.evaluate_all(hidden) > only_base
        shown.keyboard.press("Escape")
        assert shown.evaluate(focused) == "all samples"
        frames.filter(has_text="handle (server.py)").first.click()
        assert frames.first.get_attribute("width") == "100%"
        shown.locator("build-flame button").click()
        assert frames.evaluate_all(hidden) == only_base
        faults = Axe().run(shown, context=["build-flame"]).response["violations"]
        assert [fault["id"] for fault in faults] == []

    browser.on_page(page[0], task)


def test_the_finding_names_the_frame_and_leads_to_the_flame_graph(page: Made) -> None:
    [finding] = [each for each in page[1] if each.kind == FindingKind.PROFILES]
    assert "validate (server.py) 50 % → 71 % (noise explains up to 30 % of it)" in finding.text
    readme, html = page[0].with_name("README.md").read_text("utf-8"), page[0].read_text("utf-8")
    link = re.search(r"validate \(server\.py\) 50 % → 71 % .*\[Flame graph\]\(report\.html#(.+)\)", readme)
    assert link
    assert f'<h4 id="{link[1]}">Profiles</h4>' in html
    assert f'<a href="#{link[1]}">flame graph</a>' in html


def test_hostile_names_do_nothing(browser: BrowserThread, tmp_path: Path) -> None:
    for side, count in (("base", 5), ("new", 9)):
        (tmp_path / f"{side}.folded").write_text(
            "".join(f"main;{name} {count + i}\n" for i, name in enumerate(HOSTILE))
        )
    files = {side: [str(tmp_path / f"{side}.folded")] for side in ("base", "new")}
    file, _ = page_with(tmp_path, files)

    def task(shown: Any) -> Any:
        for frame in shown.locator("svg.flame > svg").all():
            frame.locator(".change").hover()
            frame.locator(".change").click()
            shown.locator("build-flame button").click()
        names = shown.locator("svg.flame text").all_text_contents()
        foreign = shown.locator(
            "svg.flame :not(svg, title, rect, text, style), h1:has-text('mine'), img[src=x]"
        ).count()
        return names, foreign

    names, foreign = browser.on_page(file, task)
    assert set(HOSTILE) <= set(names)
    assert foreign == 0
