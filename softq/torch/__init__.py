"""softq's methods in PyTorch: to try, to train and to export with (`pip install 'softq[torch]'`)."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError("softq.torch needs PyTorch: pip install 'softq[torch]'", name="torch")

from softq.torch.conversion import Converted, calibrate, convert
from softq.torch.flex import flex_attention
from softq.torch.functional import Weighing, attention, softmax, weighing
from softq.torch.gradients import Backward
from softq.torch.huggingface import apply_plan, register
from softq.torch.modules import Attention, Softmax

__all__ = [
    "Attention", "Backward", "Converted", "Softmax", "Weighing", "apply_plan", "attention", "calibrate", "convert",
    "flex_attention", "register", "softmax", "weighing",
]  # fmt: skip
