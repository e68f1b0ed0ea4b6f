"""The sections, in the order of the document. To add one, write a module with a `SECTION` and name it here."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.cpu import attention, models, quantized, rows
from benchmarks.cpu.section import Section

SECTIONS: Mapping[str, Section] = {
    module.SECTION.name: module.SECTION for module in (rows, attention, models, quantized)
}
