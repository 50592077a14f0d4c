"""Horovod for any Keras on any backend; horovod.keras and horovod.tensorflow.keras are its public modules."""
