"""`python -m softq` is the command `softq`."""

from softq.entry import main

main()
