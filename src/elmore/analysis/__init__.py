"""Analyses of section 5 of the paper: what information each layer contains."""
