"""The tf.data service on Spark: compute_worker."""
