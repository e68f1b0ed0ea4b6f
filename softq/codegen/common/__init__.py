"""What emitters of row programs share: carrier types, patterns, names."""
