"""The command `export`."""

from pathlib import Path
from typing import Annotated

from buildcompare.commandline import argument, option, show
from buildcompare.config.errors import InputError
from buildcompare.config.project import write_files


def export(
    results: Annotated[Path, argument("RESULTS", "The results.json of a report.")],
    openmetrics: Annotated[Path | None, option("--openmetrics", "A file for OpenMetrics text.")] = None,
    statsd: Annotated[str | None, option("--statsd", "HOST:PORT of a statsd, by UDP.")] = None,
) -> None:
    """Hand results to a Prometheus (as a file) or to a statsd."""
    from loadexport import export as exporting

    if openmetrics is None and statsd is None:
        raise InputError(file=None, key="export", expected="--openmetrics or --statsd", found="neither")
    address = None if statsd is None else exporting.statsd_address(statsd)  # both targets are checked before any work
    if openmetrics is not None:
        exporting.check_file(openmetrics)
    report_results = exporting.read_results(results)
    if openmetrics is not None:
        text = exporting.openmetrics(report_results)
        write_files({openmetrics: text})
        show(f"{openmetrics}: {sum(not line.startswith(b'#') for line in text.splitlines())} samples")
    if address is not None:
        show(f"{statsd}: {exporting.send_statsd(report_results, address)} gauges sent")
