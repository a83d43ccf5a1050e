"""Compare the speed and memory of all backends with other implementations.

python -m tasks.benchmark --config listops
python -m tasks.benchmark onlstm --quick
"""
