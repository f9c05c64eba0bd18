"""Run the command as `python -m elmore`, for `torchrun -m elmore`."""

from elmore.cli import main

main()
