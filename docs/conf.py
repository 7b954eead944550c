"""How Sphinx makes the documentation's site from these pages: ``make docs``."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

project = "msdump"
author = "the msdump authors"
copyright = author  # noqa: A001 - Sphinx' name
release = version = version_of("msdump")

sys.path.insert(0, str(Path(__file__).parent))  # extensions of this folder
extensions = ["message_list", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"msdump {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # pages link to headings of pages
exclude_patterns = ["schema"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
