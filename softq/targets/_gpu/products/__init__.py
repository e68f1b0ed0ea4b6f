"""Products of matrices: of halves on tensor cores, of float32 and bytes on ordinary ones; a form for few rows."""

from softq.targets._gpu.products.finish import PLAIN, Finish
from softq.targets._gpu.products.forms import Product, product
from softq.targets._gpu.products.operands import Operands, padded

__all__ = ["PLAIN", "Finish", "Operands", "Product", "padded", "product"]
