"""The version, in a module of its own so that anything can import it."""

from importlib.metadata import version

__version__ = version("softq")
