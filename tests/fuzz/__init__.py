"""Fuzzing: files that are nearly right, given to everything that reads one; only softq's own errors may come out.

    python -m tests.fuzz --seconds 600 [--seed 1] [READER...]
    python -m tests.fuzz.guided READER --seconds 600
    python -m tests.fuzz.driver --seconds 600

Cases are made of the seeds of `readers` by `mutation`: bytes changed, models changed in their structure. They run in a
process of their own, so that one that ends it is known. `guided` lets libFuzzer choose what to change by the code that
it reaches (atheris, the extra `fuzz`), and `driver` does the same for the drivers of built models in C, under ASan and
UBSan (clang). What ends in another error, or takes more than 10 s, is kept in build/fuzz. `corpus` holds what once did,
named READER-WHAT; it and a slice of new cases run in `make test`.
"""
