"""FPGAs: streaming cores in Verilog-2001, one for each of softq's functions in a converted model.

Produces a folder: for each core NAME.v, a testbench that checks itself on golden vectors, a description and
constraints of the clock (docs/fpga.md), and a manifest that says which softmaxes each core computes. Needs neither TVM
nor a vendor's tools. A core takes scores of 8 bits and gives the integers of the method's program to the bit; numbers
that were fitted, and the scale of scores that the model quantizes, are constants of it, so that softmaxes of one
function may have several cores. Where the model has floats, `step` says what one unit of the scores is. A function
whose program computes with floats or with a scan is named in a warning, with the value that is in the way; a model of
no other ones is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.targets._contract import Amount, Amounts, BuiltCores, Target, TargetOptions, Use
from softq.text_options import option


@dataclass(frozen=True)
class Options(TargetOptions):
    """What all cores of the model are built for."""

    lanes: str = option("1", "elements of a beat: 1, 2, 4 or 8")
    length: str = option("", "elements of the longest row; those of the model by default")
    scores: str = option("", "int8 or uint8; by default what the model quantizes them to, else int8")
    step: str = option("", "real value of one unit of the scores; by default their scale in the model, or the method's")
    outputs: str = option("", "what cores give, codes+normalizer for example; by default codes and the rows' numbers")
    clock: str = option("125", "megahertz that constraints ask for")
    reset: str = option("yes", "whether there is a synchronous reset: yes or no")
    packed: str = option("no", "whether results of at most 4 bits share bytes: yes or no")
    cut: str = option("no", "whether rows that are too long are cut and marked: yes or no")
    products: str = option("parallel", "parallel, by multipliers, or serial, bit by bit by one unit that all share")
    constants: str = option("yes", "whether a number that is the same for every row has a stream: yes or no")
    registers: str = option("no", "whether tables are written through a port, with a set for each head: yes or no")


def _build(model: ir.Model, options: TargetOptions) -> BuiltCores:
    from softq.rtl.models import find_cores
    from softq.rtl.wanted import parse_wanted

    wanted = parse_wanted(options.settings())
    found = find_cores(model, wanted)
    return BuiltCores(found.files(wanted.clock), found.to_json(), tuple(each.text for each in found.refused))


def _cost(use: Use, options: TargetOptions) -> Amounts:
    from softq.rtl.costs import cost_of_core
    from softq.rtl.wanted import parse_wanted

    found = cost_of_core(use.method, use.options, use.row_length, use.masked, parse_wanted(options.settings()))
    return {name: Amount(*cost) for name, cost in found.items()}


TARGET = Target(
    name="verilog",
    summary="FPGAs: streaming cores in Verilog-2001 for scores of 8 bits, with testbenches.",
    produces="a folder with a core, its testbench and description for each function, and a manifest",
    needs="nothing",
    passes=lambda: (),
    options=Options,
    build=_build,
    needs_tvm=False,
    cost=_cost,
)
