"""What tasks show: reports, examples to step through, plots and tables."""
