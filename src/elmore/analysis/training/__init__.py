"""The training runs behind Tables 1 to 3 and Figures 1 and 2 of the paper."""
