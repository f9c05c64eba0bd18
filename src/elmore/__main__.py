"""`python -m elmore` is `elmore`, which `torchrun` needs."""

from elmore.cli import main

main()
