"""Everything that a report needs, imported and set up once: by the fork server, whose children share it."""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

# Threads for matrices as small as ours cost more than the sums; and a process that has none can be forked safely.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pyarrow's own memory is got page by page, which may take ten times as long as reading a recording.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
# jsonschema looks for what checks addresses, colours and durations, over a second's imports: no notebook needs them.
UNUSED = ("rfc3987_syntax", "rfc3986_validator", "isoduration", "webcolors", "uri_template", "fqdn")
for name in UNUSED:
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # which makes its import fail
gc.disable()  # nothing of this is garbage

LATE = """
IPython.core.application IPython.core.completer IPython.core.completerlib IPython.core.logger IPython.core.magics
IPython.core.oinspect bdb
pandas.core.methods.to_dict papermill papermill.translators patsy pyarrow.parquet
scipy.linalg
"""
"""What others import when it is first used."""

for name in ("report.publish", "report.batch", "figures.curves", "figures.raster"):
    import_module(f"buildcompare.{name}")
for name in LATE.split():
    import_module(name)

for name in UNUSED:
    if sys.modules[name] is None:
        del sys.modules[name]

import nbformat  # noqa: E402
from PIL import Image  # noqa: E402

from buildcompare.comparison.analysis import running_code  # noqa: E402
from buildcompare.comparison.inputs import code_sha256  # noqa: E402
from buildcompare.config.catalogue import read_catalogue  # noqa: E402
from buildcompare.config.errors import InputError  # noqa: E402
from buildcompare.config.project import root  # noqa: E402
from buildcompare.report import sections  # noqa: E402
from buildcompare.text import sentences  # noqa: E402

Image.preinit()
for environment in (sections.templates(), sentences.environment()):
    for name in environment.list_templates(["j2"]):
        environment.get_template(name)

running_code(root())
code_sha256()
nbformat.writes(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]  # compiles the schema of notebooks
with suppress(InputError):  # who asks for it says what is wrong
    read_catalogue("mattermost")
gc.freeze()  # else every child copies the memory of what it looks through
gc.enable()
