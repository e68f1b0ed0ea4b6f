"""A model as C that drops into a project: no heap, no files, no threads, one block of memory whose size is known."""
