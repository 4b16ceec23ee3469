"""A hook of mkdocs: links out of docs/ (examples, tests) are right on GitHub, and names of files in the built site."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    depth = page.file.src_uri.count("/")

    def named(match: re.Match[str]) -> str:
        if match[2].count("../") <= depth:
            return match[0]
        return f"{match[1]} (`{match[3]}`)" if match[3].rpartition("/")[2] not in match[1] else f"`{match[3]}`"

    return _OUTSIDE.sub(named, markdown)
