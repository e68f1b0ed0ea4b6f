"""The mutants of `make mutants` still fit the tree: whoever moves code or a test carries its diff along."""

from __future__ import annotations

import pytest

from tests.mutants import ROOT, Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_diff_applies_and_names_its_test(mutant: Mutant) -> None:
    assert mutant.apply(ROOT, check=True) == ""
    assert mutant.breaks.endswith(".")
    function = mutant.test.partition("::")[2].partition("[")[0]
    assert f"\ndef {function}(" in mutant.test_file.read_text(encoding="utf-8")
