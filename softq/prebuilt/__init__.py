"""The library of operators that comes with softq: built ahead of all models, one for each family of processors.

    python -m softq.prebuilt OUT --family x86-64

writes it (`softq.prebuilt.building`); platform wheels hold it as the folder `operators` of this package.
"""
