"""Settings of the documentation site (`make docs`), which is built offline and loads nothing from elsewhere."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))
os.environ.setdefault("BUILDCOMPARE_ROOT", str(DOCS.parent))

project = "buildcompare"
author = "buildcompare authors"
version = release = installed_version("buildcompare")
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "site_directives"]
exclude_patterns = ["gallery/*", "static/*"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

html_theme = "furo"
html_title = f"buildcompare {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

default_role = "code"  # numpydoc's single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_typehints = "none"
python_use_unqualified_type_names = True
numpydoc_show_class_members = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
