"""What every training shares: optimisers, run directories, processes."""
