"""What a check is: the class that every file of this folder makes one of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from softq.audit.faults import Result
from softq.audit.subject import Subject


@dataclass(frozen=True)
class Setting:
    """How much is tried.

    Attributes:
        length: Elements of the rows that are looked at most.
        longest: Elements of the longest row that is tried.
        seed: Of the random rows.
    """

    length: int
    longest: int
    seed: int

    def random(self) -> np.random.Generator:
        """Return a source of random numbers, the same for each check."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Check:
    """One kind of question to a runtime.

    Attributes:
        name: The file's name, with hyphens.
        title: What is looked at, a few words for a heading.
        run: Looks at a subject.
        order: Checks run in this order: what is cheap and says most comes first.
    """

    name: str
    title: str
    run: Callable[[Subject, Setting], Result]
    order: int
