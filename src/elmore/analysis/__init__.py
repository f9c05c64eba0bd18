"""Evaluations of a biLM: the tables and figures of the paper, and what each layer encodes."""
