"""Shared by all training runs: run folder, checkpoints, optimizers, settings, processes."""
