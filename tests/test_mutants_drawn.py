"""Mutants that are drawn change what a program does and nothing else, and each is tried on the tests of its line."""

from __future__ import annotations

import subprocess
import textwrap

from tests.mutants import ROOT
from tests.mutants.drawing import Change, changes, draw
from tests.mutants.drawn import Suite, rate

SOURCE = textwrap.dedent('''
    """Text 1 < 2."""
    from __future__ import annotations
    __all__ = ["first"]
    def first(rows: list[int], kind: "int64" = "int64") -> "int64":
        """Return 1 - 1."""
        if not rows and kind != "int32":
            raise ValueError(f"{kind} is not 3")
        total = min(rows[0],
                    len(rows) - 1)
        total += 2
        print(total, help="one", end="é", sep=-total)
        # The field's own: 1 + 1.
        return [row for row in rows if row is not None]
''').encode()


def test_each_operator_number_name_and_statement_is_another() -> None:
    made = {(change.line, change.apply(SOURCE).decode().splitlines()[change.line - 1].strip(), change.kind)
            for change in changes("a.py", SOURCE)}  # fmt: skip
    condition = 'if not rows and kind != "int32":'
    assert made == {
        (5, """def first(rows: list[int], kind: "int64" = 'int32') -> "int64":""", "constant"),
        (7, f"""if (not ({condition[3:-1]})):""", "condition inverted"),
        (7, 'if rows and kind != "int32":', "not or sign dropped"),
        (7, 'if not rows or kind != "int32":', "and/or"),
        (7, 'if not rows and kind == "int32":', "comparison"),
        (7, "if not rows and kind != 'int64':", "constant"),
        (8, "pass", "statement dropped"),
        (9, "total = max(rows[0],", "function"),
        (9, "total = min(rows[1],", "constant"),
        (9, "total = min(rows[-1],", "constant"),
        (10, "len(rows) + 1)", "arithmetic"),
        (10, "len(rows) - 2)", "constant"),
        (10, "len(rows) - 0)", "constant"),
        (11, "pass", "statement dropped"),
        (11, "total += 3", "constant"),
        (11, "total += 1", "constant"),
        (12, "pass", "statement dropped"),
        (12, 'print(total, help="one", end="é", sep=total)', "not or sign dropped"),
        (14, "return None", "result dropped"),
        (14, "return [row for row in rows if (not (row is not None))]", "condition inverted"),
        (14, "return [row for row in rows if row is None]", "comparison"),
    }


def test_a_seed_draws_the_same_lines_again() -> None:
    names = ["git", "ls-files", "softq/rowprog/*.py"]
    files = subprocess.run(names, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    drawn = draw(ROOT, files, "seed", 40)
    assert drawn == draw(ROOT, files[::-1], "seed", 40)
    assert drawn != draw(ROOT, files, "another", 40)
    assert len({(change.file, change.line) for change in drawn}) == 40
    for change in drawn:
        source = (ROOT / change.file).read_bytes()
        assert change.apply(source) != source
        compile(change.apply(source), change.file, "exec")


def test_tests_of_a_line_come_first_and_those_of_few_lines_before_others() -> None:
    seconds = {"a::wide": 1.0, "a::narrow": 9.0, "a::other": 1.0, "b::one": 1.0, "c::far": 1.0}
    lines = {3: {"a::wide", "a::narrow", "b::one"}, 4: {"a::wide"}, 5: {"b::one", "a::wide"}, 6: {"b::one"}, 7: {""}}
    suite = Suite(seconds, {"f.py": lines})

    def tests(line: int) -> list[str]:
        return suite.tests_of(Change("f.py", line, line, 0, 1, "", ""))

    assert tests(3) == ["a::narrow", "a::wide", "b::one", "a::other"]
    assert tests(6) == ["b::one", "a::narrow", "a::wide"]
    # A line that runs while the file is imported, or never: whatever runs another line of the file.
    assert tests(7) == tests(8) == ["a::narrow", "a::wide", "b::one"]


def test_equivalent_mutants_are_left_out_up_to_four() -> None:
    def results(killed: int, survived: int, equivalent: int) -> list[dict[str, str]]:
        outcomes = ["killed"] * killed + ["survived"] * survived + ["equivalent"] * equivalent
        return [{"outcome": outcome} for outcome in outcomes]

    assert rate(results(34, 6, 0))[0] == 0.85
    assert rate(results(33, 3, 4))[0] == 33 / 36
    assert rate(results(33, 2, 5))[0] == 0
    assert "33 killed, 3 survived, 4 equivalent: 91.7% killed" in rate(results(33, 3, 4))[1]
