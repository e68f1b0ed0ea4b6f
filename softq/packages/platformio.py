"""PlatformIO: a library with its library.json.

The form is that of docs.platformio.org, "library.json"; PlatformIO checks it by platformio/package/manifest/schema.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from softq.packages._contract import Contents, Package


def _around(given: Contents) -> Mapping[str, bytes]:
    facts = {
        "name": given.name,
        "version": given.options.version,
        "description": given.summary,
        "keywords": ["machine-learning"],
        "homepage": given.options.url,
        "authors": [{"name": given.options.vendor}],
        "frameworks": ["*"],
        "platforms": ["*"],
        "headers": [given.header],
    }
    return {"library.json": (json.dumps(facts, indent=2) + "\n").encode()}


PACKAGE = Package(name="platformio", summary="A library for PlatformIO.", sources="src", around=_around)
