"""`tflite-int8` gives what CMSIS-NN's arm_softmax_s8 gave, of which a hash is stored."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("tvm")

from benchmarks.mcu.cmsis_nn import RESULTS, digest, ours, rows


def test_every_pair_and_rows_up_to_1024_are_those_of_cmsis_nn() -> None:
    stored, scores = json.loads(RESULTS.read_text(encoding="utf-8")), rows()
    assert {str(part.shape[1]): len(part) for part in scores} == stored["rows"]
    assert stored["rows"]["2"] == 32_896
    found = [ours(part) for part in scores]
    assert digest(found) == stored["sha256"]
    found[0] = np.bitwise_xor(found[0], np.eye(1, found[0].size, dtype=np.int8).reshape(found[0].shape))
    assert digest(found) != stored["sha256"]
