"""Everything that a report needs, imported and set up once: by the fork server, whose children share it."""

import os
import sys
from importlib import import_module

# Threads for matrices as small as ours cost more than the sums; and a process that has none can be forked safely.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# jsonschema looks for a grammar of internet addresses, which takes over a second to import: no notebook needs it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # which makes its import fail

for name in ("report.publish", "report.batch", "figures.curves", "figures.raster"):
    import_module(f"buildcompare.{name}")
import_module("IPython.core.interactiveshell")
import_module("statsmodels.stats.multitest")  # it imports scipy.stats

from buildcompare.report import sections  # noqa: E402
from buildcompare.text import sentences  # noqa: E402

for environment in (sections.templates(), sentences.environment()):
    for name in environment.list_templates(["j2"]):
        environment.get_template(name)
