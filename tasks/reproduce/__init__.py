"""Reproduce the tables of the papers: train with several seeds, and compare with the published results.

python -m tasks.reproduce om-table-1 --seeds 5 --dry-run
python -m tasks.reproduce om-table-1 --preset demo --threads 1
"""
