"""Links of the documentation site: those out of docs/ become text with the path.

Called by mkdocs (`make docs`) for each page; the pages themselves stay as they are, so that their
links work where the repository is read.
"""

import re
from typing import Any

_OUT = re.compile(r"\[([^\]]*)\]\((?:\.\./)([^)\s]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text, links to `../FILE` written as text and `FILE`."""
    return _OUT.sub(_named, markdown)


def _named(link: "re.Match[str]") -> str:
    text, path = link.groups()
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"
