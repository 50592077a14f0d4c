"""Where dispatchers and workers of a tf.data service register, and training processes look them up.

Both sides know the service's addresses and key from a file (horovod.tensorflow.data.compute_service). See
docs/design/data-service.md.
"""

from __future__ import annotations

from horovod.runner.common.service._compute_client import ComputeClient
from horovod.runner.common.service._compute_server import ComputeService
from horovod.runner.common.util.timeout import TimeoutException

__all__ = ["ComputeClient", "ComputeService", "TimeoutException"]
