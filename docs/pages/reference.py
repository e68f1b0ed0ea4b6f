"""The reference: the command line from click, Python from docstrings, schemas from the code."""

from __future__ import annotations

import json

import click

from softq.cli import main
from softq.cli.configuration import commands_of
from softq.cli.configuration import schema as configuration_schema
from softq.plans import plan_schema
from softq.site import inspection_schema
from softq.sweeps.report import content_schema

CLI = """# The command line

Every command and option, as `softq COMMAND --help` prints them.

::: mkdocs-click
    :module: softq.cli
    :command: main
    :prog_name: softq
    :depth: 1
    :style: table
"""

PYTHON = """# Python

Everything that `import softq` offers. Names are imported when they are first used.

"""


def python() -> str:
    """Return the page of the Python interface, one entry per public name."""
    import softq

    return PYTHON + "\n".join(f"::: softq.{name}\n" for name in softq.__all__ if name != "__version__")


def schemas() -> str:
    """Return the page of the JSON schemas that softq's own files and outputs keep to."""
    parts = [
        "# Schemas\n",
        "What `--json` prints and what is written to files has a JSON schema. A schema only ever gains fields; a field "
        "that changes its meaning gets another name, and the file another `schema` number.\n",
    ]
    for title, about, schema in (
        (
            "Configuration",
            "Of `softq.toml` ([a whole run in one file](../configuration.md)); printed by `softq config --schema`.",
            configuration_schema(commands_of(click.Context(main))),
        ),
        ("Inspection", "Printed by `softq inspect --json`.", inspection_schema()),
        (
            "Plan",
            "Written by `softq plan` and by `softq convert --save-plan`, read by `softq convert --plan` "
            "([accuracy versus bits](../budgets.md)).",
            plan_schema(),
        ),
        ("Report", "Written by `softq report` as `report.json`.", content_schema()),
    ):
        parts.append(f"## {title}\n\n{about}\n\n```text\n{json.dumps(schema, indent=1)}\n```\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Return the pages, by their place in the site."""
    return {"reference/cli.md": CLI, "reference/python.md": python(), "reference/schemas.md": schemas()}
