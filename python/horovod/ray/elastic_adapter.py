from __future__ import annotations
from dataclasses import dataclass
from typing import Any
@dataclass(frozen=True)
class ElasticParams:
    min_workers: Any
    max_workers: Any
    cpus_per_worker: Any
    use_gpu: Any
    gpus_per_worker: Any
    reset_limit: Any
    cooldown_range: Any
    elastic_timeout: Any
    override_discovery: Any
class ElasticAdapter: ...
