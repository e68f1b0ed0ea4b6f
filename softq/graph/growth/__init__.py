"""Whether ONNX's shape inference could take more memory or time for a model than the model has nodes.

It could where a value of one axis is known to be long, as inference follows its elements one by one, where axes add up
to many, and where types are put into one another. What is known of sizes is bounded here from above, by arithmetic on
single numbers per value: nothing is made of any size. A bound that is too great costs nothing but caution.
"""

from softq.graph.growth.walking import may_explode

__all__ = ["may_explode"]
