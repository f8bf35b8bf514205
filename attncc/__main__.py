"""`python -m attncc` is the command `attncc`."""

from .cli import main

main()
