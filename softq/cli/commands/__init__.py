"""The commands, one per file: the file `my_command.py` exposes `my_command`, made by `softq.cli.command.command`.

`softq --help` finds the file. It is imported when its command is called, or listed; it imports the library inside its
function, so that neither the help nor another command waits for it.
"""
