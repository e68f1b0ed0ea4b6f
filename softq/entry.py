"""Where the command `softq` begins: as little as can be is imported before Ctrl-C has its one line."""

import sys


def main() -> None:
    """Run the command line of this process."""
    try:
        from softq.cli import main as run

        run(prog_name="softq")
    except KeyboardInterrupt:  # while the program is loaded; later on `softq.cli.group` tells it
        if sys.stderr is not None:
            sys.stderr.write("softq: interrupted\n")
        sys.exit(130)
