"""Section 5 of the paper: what the layers hold. One file per question."""
