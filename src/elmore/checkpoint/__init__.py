"""Weights on disk: elmore's checkpoint directories and the files of the released models."""
