"""One training run: trainer, checkpoints, run directory, options and the command line, for every task."""
