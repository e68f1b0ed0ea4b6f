"""What the site has beyond the pages of docs/: those that are made of the code, of docstrings and of measurements."""
