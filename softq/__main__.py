"""`python -m softq` is the command `softq`."""

from softq.cli import main

main(prog_name="softq")
