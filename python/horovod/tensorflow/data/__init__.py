"""Input pipelines on processes of their own, with the tf.data service: compute_service and compute_worker."""
