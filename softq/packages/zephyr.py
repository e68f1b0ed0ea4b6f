"""Zephyr: a module, for a west manifest or `ZEPHYR_EXTRA_MODULES`; CONFIG_SOFTQ_NAME switches it on.

The form is that of docs.zephyrproject.org, "Modules"; Zephyr checks zephyr/module.yml by scripts/zephyr_module.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from softq.packages._contract import Contents, Package


def _around(given: Contents) -> Mapping[str, bytes]:
    symbol = f"SOFTQ_{given.name.upper()}"
    module = f"name: softq_{given.name}\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n"
    cmake = "\n".join(
        [
            f"if(CONFIG_{symbol})",
            "  zephyr_include_directories(../src)",
            f"  zephyr_library_named(softq_{given.name})",
            "  zephyr_library_sources(",
            *(f"    ../src/{file}" for file in given.sources),
            "  )",
            "endif()",
            "",
        ]
    )
    floats = ["\timply FPU if CPU_HAS_FPU"] if given.has_floats else []
    kconfig = "\n".join(
        [f"config {symbol}", f'\tbool "The model {given.name}"', *floats, "\thelp", f"\t  {given.summary}", ""]
    )
    return {
        "zephyr/module.yml": module.encode(),
        "zephyr/CMakeLists.txt": cmake.encode(),
        "zephyr/Kconfig": kconfig.encode(),
    }


PACKAGE = Package(name="zephyr", summary="A module for Zephyr.", sources="src", around=_around)
