"""Import and set up all modules of a report once in the fork server, for all its children."""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

# Threads slow down such small matrices, and only a process without threads can be forked safely.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pyarrow's allocator gets memory page by page, which may take ten times as long as reading a recording.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
# matplotlib reads this at its import; notebooks draw with it.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
# jsonschema takes over a second to import checkers of addresses, colours and durations, seaborn a tenth of one to
# import widgets, which no report needs.
UNUSED = ("rfc3987_syntax", "rfc3986_validator", "isoduration", "webcolors", "uri_template", "fqdn", "ipywidgets")
for name in UNUSED:
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # its import fails
gc.set_threshold(0)  # imports make no garbage, so collecting costs time only

LATE = """
bdb buildcompare.figures.curves buildcompare.report.batch buildcompare.report.engine buildcompare.report.exporters
buildcompare.report.publish IPython.core.application IPython.core.completer IPython.core.completerlib
IPython.core.logger IPython.core.magics IPython.core.oinspect IPython.core.pylabtools matplotlib.backends.backend_agg
pandas.core.methods.to_dict pandas.core.reshape.reshape pandas.io.formats.html
pandas.io.formats.string papermill papermill.translators patsy pyarrow.csv pyarrow.json pyarrow.parquet scipy.linalg
seaborn
"""
"""Modules that other code imports at first use."""
for name in LATE.split():
    import_module(name)

for name in UNUSED:
    if sys.modules[name] is None:
        del sys.modules[name]

import nbformat  # noqa: E402
import pandas as pd  # noqa: E402

from buildcompare.comparison.inputs import code_sha256  # noqa: E402
from buildcompare.comparison.provenance import running_code  # noqa: E402
from buildcompare.config.catalogue import read_catalogue  # noqa: E402
from buildcompare.config.errors import InputError  # noqa: E402
from buildcompare.config.project import root  # noqa: E402
from buildcompare.recordings.files import formats  # noqa: E402
from buildcompare.report import sections  # noqa: E402
from buildcompare.results import Results  # noqa: E402
from buildcompare.text import sentences  # noqa: E402

for environment in (sections.templates(), sentences.environment()):
    for name in environment.list_templates(["j2"]):
        if not name.startswith("sections/"):  # the loader finds these without their folder too
            environment.get_template(name)

# Python strings halve the time of lookups in small tables, compared to Arrow's.
pd.options.mode.string_storage = "python"
formats()
Results.model_rebuild()  # build its schema, which includes the kinds of other packages
running_code(root())
code_sha256()
nbformat.writes(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]  # compiles the schema of notebooks
with suppress(InputError):  # a report that needs the catalogue raises the error again
    read_catalogue("mattermost")
gc.freeze()  # else a child's garbage collector copies all shared memory
gc.set_threshold(50_000)  # a tenth less time for a report than with Python's 700, and a few MB more
