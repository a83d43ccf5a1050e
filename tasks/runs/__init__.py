"""What all tasks share: the training loop, checkpoints, run directories, options and the command line."""
