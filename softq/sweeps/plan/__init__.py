"""A plan under an accuracy budget: the search for it, and the record of what it measured."""
