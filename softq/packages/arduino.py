"""Arduino: a library that the IDE and arduino-cli take, with an example.

The form is that of the library specification 1.5 (arduino.github.io/arduino-cli, "Library specification"): a file
library.properties, what is compiled in src, and sketches in examples.
"""

from __future__ import annotations

from collections.abc import Mapping

from softq.packages._contract import Contents, Package


def _properties(given: Contents) -> str:
    options = given.options
    facts = {
        "name": given.name,
        "version": options.version,
        "author": options.vendor,
        "maintainer": options.vendor,
        "sentence": given.summary,
        "paragraph": f"{given.name}_run computes it once; {given.header} says how much memory it takes.",
        "category": "Data Processing",
        "url": options.url,
        "architectures": "*",
        "includes": given.header,
    }
    return "".join(f"{key}={value}\n" for key, value in facts.items())


def _sketch(given: Contents) -> str:
    macro = given.name.upper()
    # A sketch has functions and variables of its own: arrays have the model's name before theirs.
    own = {name: f"{given.name}_{name}" for name, _ in (*given.inputs, *given.outputs)}
    arrays = [
        f"static {kind} {own[name]}[{macro}_{name.upper()}_LENGTH];" for name, kind in (*given.inputs, *given.outputs)
    ]
    names = ", ".join(own.values())
    first, kind = given.outputs[0]
    # Boards print no integers of 64 bits, and of floats two digits unless they are asked for more.
    shown = f"{own[first]}[i], 6" if kind in ("float", "double") else f"static_cast<long>({own[first]}[i])"
    return "\n".join(
        [
            f"#include <{given.header}>",
            "",
            *arrays,
            "",
            "void setup()",
            "{",
            "    Serial.begin(115200);",
            "}",
            "",
            "void loop()",
            "{",
            "    // Fill the inputs here.",
            "    const unsigned long before = micros();",
            f"    const int code = {given.name}_run({names});",
            "    const unsigned long after = micros();",
            f"    if (code != {macro}_OK) {{",
            '        Serial.print("the run ends with code ");',
            "        Serial.println(code);",
            "    }",
            f"    for (unsigned long i = 0; i < {macro}_{first.upper()}_LENGTH; ++i) {{",
            f"        Serial.println({shown});",
            "    }",
            '    Serial.print("microseconds: ");',
            "    Serial.println(after - before);",
            "    delay(1000);",
            "}",
            "",
        ]
    )


def _around(given: Contents) -> Mapping[str, bytes]:
    return {
        "library.properties": _properties(given).encode(),
        f"examples/{given.name}/{given.name}.ino": _sketch(given).encode(),
    }


PACKAGE = Package(name="arduino", summary="A library for Arduino, with an example.", sources="src", around=_around)
