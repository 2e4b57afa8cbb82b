"""Everything that a report needs, imported and set up once: by the fork server, whose children share it."""

import sys

# jsonschema looks for a grammar of internet addresses, which takes over a second to import: no notebook needs it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # which makes its import fail

from buildcompare.figures import curves, raster  # noqa: E402, F401
from buildcompare.report import batch, publish, sections, shell  # noqa: E402, F401
