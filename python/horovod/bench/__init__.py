"""Measurements that a user can run: `horovodrun -np 4 python -m horovod.bench gpu`, or `network`."""
