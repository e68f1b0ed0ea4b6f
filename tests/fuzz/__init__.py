"""Fuzzing: files that are nearly right, given to everything that reads one; only softq's own errors may come out.

    python -m tests.fuzz --seconds 600 [--seed 1] [READER...]

Cases are made of the seeds of `readers` by `mutation`: bytes changed, models changed in their structure. Where atheris
is installed (the extra `fuzz`), `--atheris` lets libFuzzer choose what bytes to change by the code that they reach.
What ends in another error, or takes more than 10 s, is kept in build/fuzz. `corpus` holds what once did, named
READER-WHAT; it and a slice of new cases run in `make test`.
"""
