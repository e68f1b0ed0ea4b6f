"""ESP-IDF: a component, for the folder `components` of a project or its registry.

The form is that of docs.espressif.com, "Build System" and "idf_component.yml Manifest File"; the package
idf-component-manager checks the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from softq.packages._contract import Contents, Package


def _around(given: Contents) -> Mapping[str, bytes]:
    sources = " ".join(f'"src/{file}"' for file in given.sources)
    # A text in JSON is one in YAML.
    manifest = (
        f'version: "{given.options.version}"\ndescription: {json.dumps(given.summary)}\nurl: "{given.options.url}"\n'
    )
    build = f'idf_component_register(SRCS {sources}\n                       INCLUDE_DIRS "src")\n'
    return {"CMakeLists.txt": build.encode(), "idf_component.yml": manifest.encode()}


PACKAGE = Package(name="esp-idf", summary="A component for ESP-IDF.", sources="src", around=_around)
