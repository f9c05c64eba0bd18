"""Weights on disk: elmore's own directories, and the files of the released models."""
