"""A server repeats a token in every field, in every form, and in every way of failing: nobody else ever reads it."""

import base64
import contextlib
import functools
import json
import logging
import os
import random
import re
import string
import subprocess
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np
import pyarrow.parquet as pq
import pytest

import buildcompare as bc
from buildcompare.recordings import prometheus_answer, prometheus_session
from buildcompare.recordings.sources import Slot, is_kept, read_run
from pulling import catalogue, params, run, source
from serving import Answer, Answering, matrix, serving
from support import write_params

LETTERS = string.ascii_letters + string.digits + "+/=~._-"
TOKEN = "".join(random.Random(7).choice(LETTERS) for _ in range(2_000))
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str, "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded in small letters": lambda text: quote_plus(text).replace("%2F", "%2f").replace("%2B", "%2b"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 behind other words": lambda text: base64.urlsafe_b64encode(f"Bearer {text}".encode()).decode(),
    "its first half": lambda text: text[: len(text) // 2], "hex": lambda text: text.encode().hex().upper(),
    "quoted as JSON": json.dumps,
    "with each letter escaped": lambda text: "".join(f"\\u{ord(letter):04X}" for letter in text),
    "in small letters": str.lower,
    "over many lines": lambda text: "\n".join(text[i : i + 10] for i in range(0, len(text), 10)),
}  # fmt: skip


def five(asked: dict[str, list[str]], labels: dict[str, str], **more: Any) -> Answer:
    first, step = float(asked["start"][0]), float(asked["step"][0])
    values = [[first + i * step, str(i)] for i in range(1 if asked["start"] == asked["end"] else 5)]
    return matrix(labels, values, **more)


def ranges(answer: Callable[[dict[str, list[str]]], Answer]) -> Answering:
    return lambda path, asked: answer(asked) if path.endswith("query_range") else (404, {}, b"")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prometheus_session, "BACKOFF_S", 0.01)
    monkeypatch.setattr(prometheus_session, "GRACE_S", 0.1)
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))


ASKED: dict[str, Any] = {"auth": {"bearer_token_env": "PROM_TOKEN"}, "threads": 1}


def asking(url: str, **more: Any) -> Any:
    return source(url, **ASKED, **more)


def pull(url: str, *queries: str, **more: Any) -> bc.Recording:
    return bc.pull(url, run().start, run().end, catalogue=catalogue(*queries), **more)


@functools.cache
def parts(step: int) -> set[str]:
    forms = ["".join(form(TOKEN).split()).lower() for form in FORMS.values()]
    return {form[i : i + 16] for form in forms for i in range(0, len(form) - 15, step)}


def hidden(text: str, step: int = 3) -> bool:
    text = "".join(text.split()).lower()
    return not any(part in text for part in parts(step))


@pytest.mark.parametrize("form", FORMS)
def test_a_token_in_every_field_of_an_answer(form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = FORMS[form](TOKEN)[:990]

    def answer(path: str, asked: dict[str, list[str]]) -> Answer:
        headers = {"Content-Type": "application/json", "X-Echo": said}
        if path.endswith("query_range"):
            return five(asked, {"instance": said, "job": "a"}, warnings=[f"no store {said}"], infos=[said])
        if path.endswith("buildinfo"):
            return 200, headers, json.dumps({"data": {"application": said, "version": said}}).encode()
        return 200, {"Content-Type": "text/plain"}, said.encode()

    caplog.set_level(logging.DEBUG)
    slot = Slot("pulled", "t", "base", 1)
    with serving(answer) as url:
        kept = read_run(run(), asking(url), catalogue("up"), slot)
        assert is_kept(slot, run(), asking(url), catalogue("up"))
    assert "***" in kept.provenance["warnings"][0]
    whole = repr([[vars(s) for s in kept.series], kept.provenance, kept.notes])
    assert hidden(whole + caplog.text)
    assert hidden(inside(tmp_path / slot.path))


def inside(file: Path) -> str:
    contents = file.read_bytes()
    if contents[:4] == b"PAR1":
        held = pq.read_table(file)
        return f"{held.schema.metadata} {held.drop_columns(['values', 'times']).to_pydict()}"
    found = [contents]
    for block in re.findall(rb"[A-Za-z0-9+/]{100,}={0,2}", contents):
        with contextlib.suppress(ValueError, zlib.error):
            found.append(zlib.decompress(base64.b64decode(block), 47))  # of zlib or of gzip
    return b"\n".join(found).decode("utf-8", "replace")


CATALOGUE = {
    "metrics": [
        {"name": "Users", "slug": "users", "unit": "users", "load": True, "query": "users"},
        {"name": "Response", "slug": "response", "unit": "seconds", "better": "lower", "query": "response"},
    ],
    "label_tables": [{"group": "api", "title": "Handlers", "label": "handler", "queries": {"avg": "avg({window})"}}],
}
ASK = """
import sys
import buildcompare as bc
seen = bc.investigate(sys.argv[1], metric="response")
print(seen.ask().to_csv(), seen.summary if hasattr(seen, "summary") else "")
try:
    seen.ask("refused")
except bc.InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_token_in_every_field_reaches_no_output(tmp_path: Path, project: Path) -> None:
    every = {f"l{i}": form(TOKEN) for i, form in enumerate(FORMS.values())}

    def answer(path: str, asked: dict[str, list[str]]) -> Answer:
        headers = {"X-Echo": quote(TOKEN), "Server": TOKEN, "Set-Cookie": f"a={TOKEN}"}
        headers["Content-Type"] = "application/json"
        if path.endswith("buildinfo"):
            return 200, headers, json.dumps({"data": {"application": TOKEN, "version": every["l3"]}}).encode()
        if not path.endswith("query_range"):
            return 200, {"Content-Type": "text/plain"}, TOKEN.encode()
        query = asked["query"][0]
        if query == "refused":
            error = {"status": "error", "errorType": TOKEN, "error": " ".join(every.values())}
            return 422, headers, json.dumps(error).encode()
        first, last, step = (float(asked[name][0]) for name in ("start", "end", "step"))
        times = np.arange(first, last + step / 2, step)
        values = {"users": np.minimum((times - first) / 2, 100.0)}.get(query, 0.01 + 0.001 * np.sin(times))
        labels = {"__name__": TOKEN, "handler": TOKEN, f"x{TOKEN}": TOKEN, **every}
        rows = [[float(time), repr(float(value))] for time, value in zip(times, values, strict=True)]
        return 200, headers, matrix(labels, rows, warnings=[*every.values()], infos=[*every.values()])[2]

    for name in ("notebooks", "params"):
        (tmp_path / name).symlink_to(project / name)
    (tmp_path / "catalogue.yaml").write_text(json.dumps(CATALOGUE))
    said: list[str] = []

    def python(*command: str, code: int = 0) -> None:
        more: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "PROM_TOKEN": TOKEN}}
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, **more)
        assert done.returncode == code, done.stderr[-2000:]
        said.extend((done.stdout, done.stderr))

    with serving(answer) as url:
        source = {"auth": {"bearer_token_env": "PROM_TOKEN"}, "timeout_s": 20.0}
        asked = {**params(url, **source), "metrics": "catalogue.yaml", "history": "ledger", "name": "echo"}
        file = str(write_params(tmp_path / "echo.yaml", asked))
        python("-m", "buildcompare", "report", file, "--record", "--all", "--output", "reports/echo")
        python("-m", "buildcompare", "index", "--output", "reports")
        python("-m", "buildcompare", "history", "ledger")
        python("-c", ASK, file)
        (tmp_path / "bad.yaml").write_text(json.dumps({"metrics": [{"name": "a", "slug": "a", "query": "refused"}]}))
        bad = write_params(tmp_path / "refused.yaml", {**asked, "metrics": "bad.yaml", "name": "bad"})
        python("-m", "buildcompare", "pull", str(bad), code=3)
    assert hidden("\n".join(said))
    assert all("***" in said[i] for i in (-1, -4))
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]
    names = {path.name for path in files}
    assert {"report.html", "README.md", "results.json", "comparison.ipynb", "junit.xml", "index.html"} < names
    assert {"base.parquet", "echo.json", "metrics.csv"} < names
    assert [path for path in files if not hidden(inside(path), 40)] == []
    assert "***" in (tmp_path / "reports/echo/results.json").read_text("utf-8")


@pytest.mark.parametrize("form", ["plain", "base64 behind other words", "its first half"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "application/json") for status in (200, 302, 400, 401, 404, 418, 500, 503)),
        *((200, kind) for kind in ("text/html", f"text/{TOKEN[:200]}")),
    ],
)
def test_a_token_in_every_field_of_an_error(
    form: str, status: int, kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    said = FORMS[form](TOKEN)

    def answer(path: str, asked: dict[str, list[str]]) -> Answer:
        error = {"status": "error", "errorType": said, "error": f"{'x' * 250} {said}", "warnings": [said]}
        headers = {"Content-Type": kind, "Location": f"http://{said[:100]}/", "Retry-After": said[:50]}
        if "query_range" not in path:
            return 404, {}, b""
        return status, headers, json.dumps(error).encode()

    caplog.set_level(logging.DEBUG)
    with serving(answer, status_line=said[:500]) as url, pytest.raises(bc.BuildcompareError) as caught:
        pull(url, "up", **ASKED)
    assert "***" in str(caught.value) or status in (302, 404) or "text" in kind
    output = capfd.readouterr()
    assert hidden(str(caught.value) + caplog.text + output.out + output.err)


tenants = ranges(lambda asked: five(asked, {"instance": "a"}))


def test_what_was_pulled_for_one_tenant_is_never_another_s(monkeypatch: pytest.MonkeyPatch) -> None:
    slot, asked = Slot("pulled", "t", "base", 1), catalogue("up")
    with serving(tenants) as url:
        own = asking(url, headers={"X-Scope-OrgID": "a"})
        first = read_run(run(), own, asked, slot)
    elsewhere = run().model_copy(update={"start": run().start.astimezone(), "end": run().end.astimezone()})  # type: ignore[union-attr]
    assert is_kept(slot, elsewhere, own, asked)
    assert is_kept(slot, run(), asking(url, headers={"x-scope-orgid": "a"}), asked)
    other = asking(url, headers={"X-Scope-OrgID": "b"})
    assert not is_kept(slot, run(), other, asked)
    with pytest.raises(bc.SourceError):  # its server is gone, and tenant a's data is no answer for b
        read_run(run(), other, asked, slot)
    monkeypatch.setenv("PROM_TOKEN", "another-token-altogether")
    assert not is_kept(slot, run(), own, asked)
    monkeypatch.delenv("PROM_TOKEN")
    assert is_kept(slot, run(), own, asked)  # who cannot ask may read what was pulled
    assert TOKEN not in json.dumps(dict(first.provenance))
    assert len(first.provenance["request"]) == 64


def test_a_damaged_file_of_what_was_pulled_is_said_and_pulled_again_on_demand(tmp_path: Path) -> None:
    slot, asked = Slot("pulled", "t", "base", 1), catalogue("up")
    with serving(tenants) as url:
        read_run(run(), asking(url), asked, slot)
        file = tmp_path / slot.path
        contents = bytearray(file.read_bytes())
        contents[len(contents) // 2] ^= 4
        file.write_bytes(contents)
        with pytest.raises(bc.InputError, match=r"base\.parquet: checksum: .*pull with --refresh"):
            read_run(run(), asking(url), asked, slot)
        assert read_run(run(), asking(url), asked, slot, refresh=True).series


@pytest.mark.parametrize(
    ("more", "words"),
    [
        *(({key: True}, "calls partial") for key in ("isPartial", "partial", "partialResponse")),
        ({"data": {"isPartial": True}}, "calls partial"),
        ({"warnings": ["some stores failed: Partial response"]}, "calls partial"),
        ({"warnings": 5}, "another form"),
        ({"data": 5}, "another form"),
    ],
)
def test_an_answer_that_is_not_whole_is_no_recording(more: dict[str, Any], words: str) -> None:
    answer = ranges(lambda asked: five(asked, {}, **more))
    with serving(answer) as url, pytest.raises(bc.SourceError, match=words):
        pull(url, "up", **ASKED)


def test_an_answer_with_half_of_the_points_is_noted() -> None:
    def answer(asked: dict[str, list[str]]) -> Answer:
        asked = {**asked, "step": [str(2 * float(asked["step"][0]))]}
        return five(asked, {})

    with serving(ranges(answer)) as url:
        [note] = pull(url, "up", **ASKED).notes
    assert "fewer points than were asked for in 1 of 1 queries, such as m0 every 10 s" in note.text


def test_a_slow_answer_holds_up_no_other() -> None:
    names = [f"m{i}" for i in range(20)]
    answered: set[str] = set()
    others = threading.Event()

    def answer(asked: dict[str, list[str]]) -> Answer:
        if asked["query"] == ["m0"]:
            assert others.wait(30), "the others were not asked meanwhile"
        answered.add(asked["query"][0])
        if len(answered) == len(names) - 1:
            others.set()
        return five(asked, {})

    with serving(ranges(answer)) as url:
        found = pull(url, *names, threads=2)
    assert [series.metric for series in found.series] == names


@pytest.mark.parametrize(
    ("way", "damaged"),
    [("through a proxy", 0), ("hanging up after each answer", 0), ("again", 1), ("again", 4), ("five times in all", 5)],
)
def test_a_server_is_asked_on(way: str, damaged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names, counts = [f"m{i}" for i in range(20)], Counter[str]()

    def answer(asked: dict[str, list[str]]) -> Answer:
        (query,), (status, headers, body) = asked["query"], five(asked, {})
        counts[query] += 1
        if query in ("m3", "m17") and counts[query] <= damaged:
            body = body.replace(b'"0"', b'"?"')
        return status, {**headers, **({"Connection": "close"} if "hanging up" in way else {})}, body

    refused = pytest.raises(bc.SourceError, match=r"JSON that is damaged.*5 times")
    with serving(ranges(answer)) as url, refused if damaged == 5 else contextlib.nullcontext():
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", "" if way == "through a proxy" else "*")
        found = pull("http://server.invalid:9090" if way == "through a proxy" else url, *names, threads=3)
        assert [series.metric for series in found.series] == names
        assert counts == {name: 1 + damaged * (name in ("m3", "m17")) for name in names}


@pytest.mark.parametrize("steps", [(0, 0.5), (-1, 0), range(5_000), (0, 10**400)], ids=lambda steps: f"{steps}"[:16])
def test_values_at_other_times_than_asked_are_no_answer(steps: Sequence[float]) -> None:
    def answer(asked: dict[str, list[str]]) -> Answer:
        first, step = (int(float(asked[name][0])) for name in ("start", "step"))
        return matrix({}, [[first + i * step, "1"] for i in steps])

    with serving(ranges(answer)) as url, pytest.raises(bc.SourceError, match=r"damaged \(Overflow|requested times"):
        pull(url, "up", **ASKED)


def test_blanks_without_end_are_given_up() -> None:
    """tests/stress bounds the time: each piece must not be searched anew."""
    pieces = iter([b" " * (1 << 16)] * 2_000)
    with pytest.raises(bc.InputError, match="series of at most 64 MB"):
        prometheus_answer.read_answer(pieces)
    assert len([*pieces]) > 900
