"""What every test may ask for: the project's folder, the real data, a browser. And the rule about skips."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

    from buildcompare.results import Results

PROJECT = Path(__file__).resolve().parents[1]
pytest_plugins = ["postgresql_server", "prometheus_server", "pulling"]  # fixtures of more than one folder
REQUIRE_ALL = "BUILDCOMPARE_REQUIRE_ALL"

T = TypeVar("T")

# Before numpy is imported, for this process and all that it starts: matrices here are small, and threads that wait for
# each other beside another worker's cost more than the sums themselves.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # comparisons of tests are no results of the runner that runs them
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def _forbid_skip(report: T) -> T:
    assert isinstance(report, pytest.TestReport | pytest.CollectReport)
    if os.environ.get(REQUIRE_ALL) == "1" and report.skipped and not hasattr(report, "wasxfail"):
        where_and_why = report.longrepr
        reason = where_and_why[2] if isinstance(where_and_why, tuple) else str(where_and_why)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and {REQUIRE_ALL}=1 asks for every test. {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _forbid_skip((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _forbid_skip((yield))


SLOW_FIXTURES = {
    "browser", "bundled", "chromium", "filled", "hostile", "learned", "pages", "real", "reports", "servers",
}  # fmt: skip
"""Tests that ask for one of these are `slow`: a browser, a kernel, a server, the real data, or a calibration."""


LONGEST = (
    "labmatrix/test_example.py", "report/test_accessibility.py", "report/test_publication.py",
    "notebooks/test_notebooks.py", "report/test_reports.py", "recordings/test_prometheus_faults.py",
    "notebooks/test_jupyterlab.py", "findings/test_evidence.py",
    "report/test_hostile.py", "recordings/test_pull.py",
)  # fmt: skip
"""Files of half a minute and more, the longest first: else one worker would be at such a file long after the other."""


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {PROJECT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if SLOW_FIXTURES & fixtures:
            item.add_marker("slow")
        if "real" in fixtures:
            item.add_marker("untraced")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop coverage around a test marked `untraced` and the fixtures that are made for it.

    All that runs of it: pytest-cov starts two in a worker, and one that is stopped (`no_cover`) wakes the other.
    """
    from coverage import Coverage

    stopped: list[Coverage] = []
    while item.get_closest_marker("untraced") and (running := Coverage.current()) is not None:
        running.stop()
        stopped.append(running)
    try:
        return (yield)
    finally:
        for each in reversed(stopped):
            each.start()


@pytest.fixture(scope="session")
def project() -> Path:
    return PROJECT


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params").mkdir()
    for name in ("notebooks", "params/metrics"):
        (tmp_path / name).symlink_to(PROJECT / name)
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def real() -> Path:
    folder = Path(os.environ.get("BUILDCOMPARE_REAL") or PROJECT.parent / "shared" / "real").resolve()
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder (BUILDCOMPARE_REAL names another)")
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`once(name, make)`: what `make` wrote to the path that it was given, by the first worker that asked for it."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    shared.mkdir(exist_ok=True)

    def once(name: str, make: Callable[[Path], object]) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / name).exists():
                make(shared / name)
        return shared / name

    return once


@pytest.fixture(scope="session")
def bundled(once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[[str], Path]:
    """`bundled("v11.1.0-rc2")`: the folder of that bundled comparison's report, published once."""

    def report(name: str) -> Path:
        from buildcompare.report.publish import publish

        return once(name, lambda folder: publish(PROJECT / f"params/{name}.yaml", output=folder))

    return report


@pytest.fixture(scope="session")
def compared(real: Path, once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[[str], Results]:
    """`compared("v10.4")`: the results of that published comparison, all its tests, compared once."""
    from buildcompare.results import Results, dumps
    from support import analysed, real_params

    def results(release: str) -> Results:
        def compare(file: Path) -> None:
            params = real_params(real, release, "v1.2.3", "v1.3.0-rc1", name=release)
            file.write_text(dumps(analysed(params).results), "utf-8")

        return Results.model_validate_json(once(f"{release}.json", compare).read_text("utf-8"))

    return results


@pytest.fixture(scope="session")
def chromium() -> Path:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    return Path(found)


WATCH = """window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));"""


class BrowserThread:
    """A Playwright browser that lives in a thread of its own.

    Playwright's synchronous interface keeps an event loop running in the thread that uses it. In the main thread that
    would break every later `asyncio.run`, and with it papermill and nbclient.
    """

    def __init__(self, executable: Path) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")
        self._playwright, self._browser = self._thread.submit(self._start, executable).result()

    @staticmethod
    def _start(executable: Path) -> tuple[Playwright, Browser]:
        from playwright.sync_api import sync_playwright

        off = (f"--disable-{each}" for each in ("gpu", "quic", "background-networking", "component-update", "sync"))
        options = ["--headless", "--no-sandbox", "--no-first-run", *off]
        playwright = sync_playwright().start()
        return playwright, playwright.chromium.launch(executable_path=executable, args=options)

    def run(self, task: Callable[[Browser], T]) -> T:
        """Call `task` with the Playwright browser; pages, and all that comes from them, stay inside the task."""
        return self._thread.submit(task, self._browser).result()

    def look(
        self, address: str, task: Callable[[Page], T], prepare: Callable[[Page], object] | None = None, **look: Any
    ) -> T:
        """Call `task` with the page of this address, in a context such as `viewport`; `prepare` gets it before."""

        def opened(browser: Browser) -> T:
            context = browser.new_context(**look)
            try:
                page = context.new_page()
                if prepare is not None:
                    prepare(page)
                page.goto(address)
                return task(page)
            finally:
                context.close()

        return self.run(opened)

    def on_page(self, file: Path, task: Callable[[Any], T], *, asks: bool = False, **look: Any) -> T:
        """`task` on a page, which prints nothing, keeps its policy and requests nothing (unless `asks`)."""
        said: list[str] = []

        def prepare(page: Page) -> None:
            page.add_init_script(WATCH)
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.on("dialog", lambda dialog: dialog.dismiss())

        def run(page: Page) -> T:
            if not asks:
                page.on("request", lambda request: said.append(request.url))
            found = task(page)
            assert (said, page.evaluate("window.violations || []")) == ([], [])
            return found

        return self.look(file.as_uri(), run, prepare, **{"viewport": {"width": 1280, "height": 900}, **look})

    def close(self) -> None:
        def stop() -> None:
            self._browser.close()
            self._playwright.stop()

        self._thread.submit(stop).result()
        self._thread.shutdown()


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[BrowserThread]:
    thread = BrowserThread(chromium)
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def requests_of(browser: BrowserThread) -> Callable[..., list[str]]:

    def requests_of(page_file: Path, *, javascript: bool = True) -> list[str]:
        address = page_file.resolve().as_uri()
        log: list[str] = []

        def watch(page: Page) -> None:
            devtools = page.context.new_cdp_session(page)
            devtools.on("Network.requestWillBeSent", lambda event: log.append(event["request"]["url"]))
            devtools.on("Network.webSocketCreated", lambda event: log.append(event["url"]))
            devtools.send("Network.enable")

        def wait(page: Page) -> None:
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(300)

        browser.look(address, wait, watch, java_script_enabled=javascript)
        addresses = [each for each in log if not each.startswith("data:")]
        assert address in addresses, f"the log misses the document itself: {addresses}"
        addresses.remove(address)
        return addresses

    return requests_of
