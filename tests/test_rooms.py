"""Private modules and names are their package's own; import-linter checks the rest (`make lint`)."""

from __future__ import annotations

import grimp


def test_private_modules_are_imported_by_their_own_package_alone() -> None:
    graph = grimp.build_graph("softq")
    strangers: list[str] = []
    for module in sorted(graph.modules):
        package, _, name = module.rpartition(".")
        if name.startswith("_") and not name.startswith("__"):
            importers = graph.find_modules_that_directly_import(module)
            strangers += [
                f"{other} -> {module}" for other in sorted(importers) if not f"{other}.".startswith(f"{package}.")
            ]
    assert not strangers
