"""TIR functions: expressions, loop nests, and their fusion."""
