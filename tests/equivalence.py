"""The check that a core gives what its program says, for all scores of short rows."""

from __future__ import annotations

from softq.codegen.verilog.core import Core
from softq.rowprog import Program
from tests.reference import WIDTH, reference

ROWS = 2


def with_reference(core: Core, program: Program) -> str:
    """Return a core's module with assertions that its first two rows are what the program gives.

    The rows have any scores and any lengths that the core takes, one follows the other at once, and everything that is
    given is taken: what waiting does is a matter of the streams alone.

    Args:
        core: The core, of one lane, without a mask, and with a reset.
        program: What it is to compute, not tabulated.
    """
    plan = core.plan
    longest, bits = plan.settings.length, plan.score_field.width
    head, end, _ = core.text.rpartition("endmodule")
    lines: list[str] = []
    for row in range(ROWS):
        lines.append(f"(* anyconst *) reg [{bits * longest - 1}:0] f_scores_{row};")
        lines.append(f"(* anyconst *) reg [3:0] f_length_{row};")
        for length in range(1, longest + 1):
            lines += _instance(core, program, row, length)
        lines.append(f"wire [{WIDTH * longest - 1}:0] f_row_{row} = {_chosen(f'f_row_{row}', row, longest)};")
        for name in plan.numbers:
            lines.append(f"wire [{WIDTH - 1}:0] f_{name}_{row} = {_chosen(f'f_{name}_{row}', row, longest)};")
    modules = "".join(reference(program, f"reference_{length}", length) for length in range(1, longest + 1))
    body = "\n".join(f"    {line}" for line in [*lines, *_checks(core)])
    return f"{head}\n    // Properties: what the program gives\n{body}\n{end}\n{modules}"


def _instance(core: Core, program: Program, row: int, length: int) -> list[str]:
    """Return the program for a row of a length, and the wires of what it gives."""
    plan, side = core.plan, f"{row}_{length}"
    wires = {plan.row_name: (f"f_row_{side}", WIDTH * length)}
    wires |= {name: (f"f_{name}_{side}", WIDTH) for name in plan.numbers}
    ports = [f".scores(f_scores_{row}[{plan.score_field.width * length - 1}:0])", f".valid({{{length}{{1'b1}}}})"]
    ports += [f".{name}({wires[name][0]})" if name in wires else f".{name}()" for name in program.outputs]
    declared = [f"wire [{width - 1}:0] {name};" for name, width in wires.values()]
    return [*declared, f"reference_{length} f_reference_{side} ({', '.join(ports)});"]


def _chosen(name: str, row: int, longest: int) -> str:
    lengths = range(1, longest + 1)
    return " : ".join([*(f"f_length_{row} == {n} ? {name}_{n}" for n in lengths), "0"])


def _checks(core: Core) -> list[str]:
    plan = core.plan
    longest, bits, field = plan.settings.length, plan.score_field.width, plan.field(plan.row)
    ready = "m_axis_tready & n_axis_tready" if plan.numbers else "m_axis_tready"
    lines = [
        "reg [4:0] f_in = 0, f_out = 0, f_number = 0;",
        "wire [4:0] f_all = f_length_0 + f_length_1;",
        "wire f_second_in = f_in >= f_length_0;",
        "wire f_second_out = f_out >= f_length_0;",
        "wire [4:0] f_at = f_second_in ? f_in - f_length_0 : f_in;",
        "wire [4:0] f_back = f_second_out ? f_out - f_length_0 : f_out;",
        f"wire [{bits * longest - 1}:0] f_given = f_second_in ? f_scores_1 : f_scores_0;",
        f"wire [{WIDTH * longest - 1}:0] f_wanted = f_second_out ? f_row_1 : f_row_0;",
        "always @(posedge aclk) begin",
        "    f_in <= f_in + (s_axis_tvalid & s_axis_tready);",
        "    f_out <= f_out + (m_axis_tvalid & m_axis_tready);",
        *(["    f_number <= f_number + (n_axis_tvalid & n_axis_tready);"] if plan.numbers else []),
        "end",
        "always @* begin",
        f"    assume (aresetn & {ready} & s_axis_tvalid == (f_in < f_all));",
        *(f"    assume (f_length_{row} >= 1 & f_length_{row} <= {longest});" for row in range(ROWS)),
        f"    assume (s_axis_tdata == f_given[{bits} * f_at +: {bits}]);",
        "    assume (s_axis_tlast == (f_in + 1 == f_length_0 | f_in + 1 == f_all));",
        "    if (m_axis_tvalid) begin",
        "        assert (f_out < f_all);",
        f"        assert (m_axis_tdata == f_wanted[{WIDTH} * f_back +: {field.padded}]);",
        "        assert (m_axis_tlast == (f_out + 1 == f_length_0 | f_out + 1 == f_all));",
        "    end",
    ]
    low = 0
    for name, node in plan.numbers.items():
        width = plan.field(node).padded
        wanted = f"(f_number == 0 ? f_{name}_0[{width - 1}:0] : f_{name}_1[{width - 1}:0])"
        lines.append(f"    if (n_axis_tvalid) assert (f_number < {ROWS} & n_axis_tdata[{low} +: {width}] == {wanted});")
        low += width
    return [*lines, "end"]
