"""What scripts do to give each process a GPU of its own, on a machine that has none."""

from __future__ import annotations

import os

import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())
assert hvd.size() == 2

# TensorFlow refuses each of these once its devices are initialised: neither the import nor init() has done that.
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_intra_op_parallelism_threads(1)

for api in (tf.config, tf.config.experimental):
    gpus = api.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        api.set_visible_devices(gpus[hvd.local_rank()], "GPU")
assert len(tf.config.list_logical_devices("CPU")) == 2, "the configuration above was taken"

config = tf.compat.v1.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())

assert hvd.allreduce(tf.ones([3]), op=hvd.Sum).numpy().tolist() == [2.0] * 3
for cpu in ("/cpu:0", "/cpu:1"):
    with tf.device(cpu):
        assert hvd.allreduce(tf.ones([3]), op=hvd.Sum).numpy().tolist() == [2.0] * 3
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    assert session.run(hvd.allreduce(tf.ones([3]), op=hvd.Sum)).tolist() == [2.0] * 3

# Also where the program asks for a GPU for the reduction, and lets TensorFlow put it elsewhere.
tf.config.set_soft_device_placement(True)
reduced = hvd.allreduce(tf.ones([3]), op=hvd.Sum, device_dense="/gpu:0")
assert reduced.numpy().tolist() == [2.0] * 3
print("pinned", flush=True)
