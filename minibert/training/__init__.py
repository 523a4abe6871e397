"""What all training shares: optimizers, the loop, checkpoints to go on from, the log."""
