"""ListOps: predict the values of nested list operations.

python -m tasks.listops --preset demo
python -m tasks.listops predict "[MAX 2 9 [MIN 4 7 ] 0 ]"
python -m tasks.listops evaluate --test 900-1000 --num-slots 24
"""
