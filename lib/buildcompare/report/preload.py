"""Import and set up all modules of a report once in the fork server, for all its children."""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

# OpenBLAS uses one thread: threads slow down small matrices, and a process with threads cannot be forked safely.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pyarrow uses the system's allocator: allocation by pyarrow's default may take ten times as long as the read itself.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
# Notebooks draw with this backend; matplotlib reads the variable when it is imported.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
# No report needs these modules, so their imports are made to fail. This saves 0.1 s for ipywidgets (used by seaborn),
# and more than 1 s for the other modules, which jsonschema imports to check addresses, colours and durations.
UNUSED = ("rfc3987_syntax", "rfc3986_validator", "isoduration", "webcolors", "uri_template", "fqdn", "ipywidgets")
for name in UNUSED:
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None makes an import fail
gc.set_threshold(0)  # garbage collection is off during imports: they make no garbage

LATE = """
bdb buildcompare.figures.curves buildcompare.report.batch buildcompare.report.engine buildcompare.report.exporters
buildcompare.report.publish IPython.core.application IPython.core.completer IPython.core.completerlib
IPython.core.logger IPython.core.magics IPython.core.oinspect IPython.core.pylabtools matplotlib.backends.backend_agg
pandas.core.methods.to_dict pandas.core.reshape.reshape pandas.io.formats.html
pandas.io.formats.string papermill papermill.translators patsy pyarrow.csv pyarrow.json pyarrow.parquet scipy.linalg
seaborn
"""
"""Modules that other code imports only at first use. The fork server imports them once for all child processes."""
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
from buildcompare.recordings.formats import formats  # noqa: E402
from buildcompare.report import sections  # noqa: E402
from buildcompare.results import Results  # noqa: E402
from buildcompare.text import sentences  # noqa: E402

for environment in (sections.templates(), sentences.environment()):
    for name in environment.list_templates(["j2"]):
        if not name.startswith("sections/"):  # each template in sections/ is also listed without the folder
            environment.get_template(name)

# pandas stores text as Python strings: lookups in small tables take half as long as with Arrow's strings.
pd.options.mode.string_storage = "python"
formats()
Results.model_rebuild()  # builds the schema, with the result models that other packages register
running_code(root())
code_sha256()
nbformat.writes(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]  # makes nbformat compile its schema of notebooks
with suppress(InputError):  # a report that needs the catalogue raises the error again
    read_catalogue("mattermost")
gc.freeze()  # without it, garbage collection in a child would copy all shared memory
gc.set_threshold(50_000)  # a report is a tenth faster than with Python's default of 700, and needs a few MB more
