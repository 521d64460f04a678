"""What one would write without branchmem, at its best: one peer a module.

A peer is built from the same messages and sources as the store, keeps whatever
index it likes, warm and in memory, and may have several variants of one
answer; the comparison takes the quickest.  None is charged for building its
index, nor for keeping it right while conversations grow.
"""
