"""What there is to know about a method, found by analysing and running its programs, never written down by hand."""

from softq.specification.facts import describe_method
from softq.specification.text import drop_in_to_text, method_to_text, methods_to_text

__all__ = ["describe_method", "drop_in_to_text", "method_to_text", "methods_to_text"]
