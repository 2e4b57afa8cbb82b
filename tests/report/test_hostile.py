"""Hostile content is inert, and hostile files end in a message, not in a machine without memory."""

import csv
import io
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

import fuzzing
from buildcompare.report import markdown
from buildcompare.report.publish import publish
from buildcompare.results import Results
from buildcompare.results.models import SetupRow
from buildcompare.results.tables import tables
from support import small_params, write_params

EVIL = "<script>document.title='owned'</script> ](javascript:alert(1)) | `tick` \n\n# no heading $x$ & \\"
GIGABYTE = 1 << 30
HEAD = b"timestamp,metric,value\n"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    params = small_params(folder / "<b>|data`")
    for side in ("base", "new"):
        params[side] = {"label": f"{side} {EVIL}"}
        for test in params["tests"]:
            run = test[side]
            evil = EVIL.replace('"', '""')
            with Path(run["labels"]).open("a", encoding="utf-8") as stream:
                stream.write(f'api,"{evil}",avg,0.5\n"{evil}","{evil}",p99,0.5\n')
            with Path(run["recording"]).open("a", encoding="utf-8") as stream:
                stream.write(f'2024-01-01T00:00:00Z,"{evil}",1\n2024-01-01T00:00:05Z,"{evil}",2\n')
    params["comments"] = [EVIL, "<img src=x onerror=\"document.title='owned'\">", "[x](javascript:alert(1))"]
    params["action_items"] = [EVIL]
    params["action_items_title"] = EVIL[:90]
    params["setup"] = {EVIL: EVIL}
    params["grafana"] = {EVIL: "https://example.org/a(b)|c"}
    params["tests"][0]["db_engine"] = EVIL[:60]
    return publish(write_params(folder / "evil.yaml", params), output=folder / "out").folder


def test_hostile_text_is_text_in_the_page(hostile: Path, browser: Any) -> None:
    def look(page: Any) -> tuple[str, str, int, list[str]]:
        links = page.evaluate("() => [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
        return page.title(), page.inner_text("main"), page.locator("main script, main img, iframe").count(), links

    title, text, elements, links = browser.look((hostile / "report.html").as_uri(), look)
    assert title.startswith("base <script>")  # a title is text
    assert "<script>document.title='owned'</script>" in text
    assert elements == 0
    ours = r"(?:tables/[a-z_]+\.csv|README\.md|results\.json|comparison\.ipynb|\.\./\.\./notebooks/investigate\.ipynb)"
    assert all(link.startswith(("https://", "#")) or re.fullmatch(ours, link) for link in links)
    page = (hostile / "report.html").read_text("utf-8")
    assert page.casefold().count("<script") == 1  # the page's own, which its policy knows by its hash


def test_hostile_text_is_text_in_markdown(hostile: Path) -> None:
    readme = (hostile / "README.md").read_text("utf-8")
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    tokens = parser.parse(readme)
    children = [child for token in tokens for child in (token.children or [])]
    html = [t.content for t in [*tokens, *children] if t.type in ("html_block", "html_inline")]
    ours = [markdown.NOTICE, *map(markdown.markers, markdown.BLOCKS)]
    assert "".join(html).split() == " ".join(ours).split()
    links = [str(t.attrGet("href")) for t in children if t.type == "link_open"]
    others = [link for link in links if not link.startswith("https://") and link != "report.html"]
    assert others == ["javascript:alert(1)"]  # of a comment, whose author is trusted; none of a stranger's name
    images = [str(t.attrGet("src")) for t in children if t.type == "image"]
    assert all(re.fullmatch(r"graphs/[A-Za-z0-9._-]+\.svg", image) for image in images)
    assert all((hostile / image).exists() for image in images)
    assert "document.title='owned'" in readme  # shown, not swallowed
    kinds = " ".join(token.type for token in tokens)
    rows = [len(re.findall("t[hd]_open", row)) for row in kinds.split("tr_open")[1:]]
    assert rows == [2, 2, 6, 6, 6, 4, 4, 2, 2, 2, 2]  # setup, supported users, results, two graphs a row of each test
    headings = [token for token in tokens if token.type == "heading_open"]
    assert len(headings) == 9  # none of the comment's


def test_a_spreadsheet_takes_no_text_for_a_formula() -> None:
    texts = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "＝1", "plain", "a=1"]
    results = Results.model_validate_json(json.dumps(fuzzing.a_report()))
    setup = [SetupRow(setting=text, value=text) for text in texts]
    made = tables(results.model_copy(update={"setup": setup}))
    cells = list(csv.reader(io.StringIO(made["setup"], newline="")))[1:]
    assert cells == [[("'" * (i < 7) + text).replace("\r", "\n")] * 2 for i, text in enumerate(texts)]
    rows = csv.DictReader(io.StringIO(made["metrics"]))
    assert any(float(row["base"]) for row in rows), "numbers stay numbers"


def test_params_cannot_write_elsewhere(hostile: Path) -> None:
    assert {path.name for path in hostile.parent.iterdir()} == {"<b>|data`", "evil.yaml", "out"}
    for graph in (hostile / "graphs").iterdir():
        assert re.fullmatch(r"[A-Za-z0-9._-]+\.svg", graph.name)


WATCHED = """
import resource
import sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
from buildcompare.config.errors import InputError
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Source, read_params
from buildcompare.recordings.sources import record
kind, path = sys.argv[1:]
try:
    if kind == "params":
        read_params(path)
    else:
        record(Run(**{kind: path}), Source(kind="recorded"), read_catalogue("mattermost"))
    print("read")
except InputError as error:
    print("refused:", error)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def packed(head: bytes, block: bytes, times: int) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    begin = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)  # what follows refers to nothing before it
    once = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + once * times + packer.flush()


def aliases() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines).encode()


def parquet(rows: int, **columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"timestamp": np.zeros(rows), **columns}), sink, compression="zstd")
    return bytes(sink.getvalue())


def texts() -> bytes:
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, dtype=np.int32)), pa.array(["x" * 1_000_000]))
    return parquet(100_000, metric=words, value=np.ones(100_000))


def one_list() -> bytes:
    values = pa.ListArray.from_arrays(pa.array([0, 40_000_000], pa.int32()), pa.array(np.zeros(40_000_000)))
    return parquet(1, values=values)


BOMBS: dict[str, tuple[str, Callable[[], bytes | None], str]] = {
    "params of 5 GB": ("params", lambda: None, "bytes"),
    "params with aliases of aliases": ("params", aliases, "values"),
    "params nested 100,000 deep": ("params", lambda: b"{a: " * 100_000, "nested"),
    "a CSV of 5 GB": ("recording", lambda: None, "500 MB"),
    "a CSV with 10 million columns": (
        "recording", lambda: HEAD[:-1] + b",x" * 10_000_000 + b"\n1,rps,1\n", "field larger than field limit",
    ),
    "a gzip that unpacks to 5 GB of CSV": (
        "recording", lambda: packed(HEAD, b"2024-01-01T00:00:00Z,rps,1\n" * 500_000, 400), "500 MB",
    ),
    "a gzip that unpacks to 4.5 GB of JSON": ("report", lambda: packed(b"", b" " * 1_000_000, 4500), "32 MB"),
    "JSON of 10 million empty lists": ("report", lambda: b'{"StartTime": [' + b"[]," * 10_000_000 + b"[]]}", "ltctl"),
    "JSON nested 100,000 deep": ("report", lambda: b'{"a":' * 100_000, "nested"),
    "a Parquet of 30 million rows": ("recording", lambda: parquet(30_000_000), "at most 20,000,000"),
    "a Parquet with 100 GB of text in 1 MB": ("recording", texts, "characters"),
    "a Parquet with one list of 40 million": ("recording", one_list, "list<element: double>"),
}  # fmt: skip
"""By name the kind of file, its contents (None: 5 GB of nothing), and words of the refusal."""


def watched(kind: str, file: Path) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, kind, str(file)], capture_output=True, text=True, check=True, timeout=120
    )
    said, peak = done.stdout.split("VmHWM:")
    return " ".join(said.split()), int(peak.split()[0]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_under_a_gigabyte(tmp_path: Path, name: str) -> None:
    kind, make, words = BOMBS[name]
    file = tmp_path / "bomb"
    with file.open("wb") as stream:
        contents = make()
        stream.truncate(5 * GIGABYTE) if contents is None else stream.write(contents)
    said, peak = watched(kind, file)
    assert said.startswith(f"refused: {file}")
    assert words in said
    assert peak < GIGABYTE


@pytest.mark.slow
def test_a_table_of_31_mb_takes_less_than_a_gigabyte(tmp_path: Path) -> None:
    rows = b"".join(b"%d,%d,1\n" % (1_700_000_000 + i, i % 150) for i in range(2_000_000))
    file = tmp_path / "large.csv"
    file.write_bytes(HEAD + rows[:31_000_000].rsplit(b"\n", 1)[0] + b"\n")
    said, peak = watched("recording", file)
    assert said == "read"
    assert 50_000_000 < peak < GIGABYTE, "it is measured"
