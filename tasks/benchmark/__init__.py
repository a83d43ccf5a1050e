"""Compare the speed and memory of all backends with other implementations."""
