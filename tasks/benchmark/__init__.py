"""Speed and memory of every backend beside other implementations."""
