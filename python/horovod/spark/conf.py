"""Settings of Spark that say what becomes of tasks, executors and nodes where tasks have failed.

Each is a pair for `SparkConf.set(*pair)`. The names `spark.blacklist.*` are those of Spark before 3.1; newer ones know
them as old names of `spark.excludeOnFailure.*`.
"""

from __future__ import annotations

_MAX_INT = "2147483647"
# Below the number of a task's failures, as Spark demands of what is counted by node.
_MAX_INT_MINUS_ONE = "2147483646"

_TASK_MAX_FAILURES = "spark.task.maxFailures"
_ENABLED = "spark.blacklist.enabled"
_STAGE_EXECUTOR = "spark.blacklist.stage.maxFailedTasksPerExecutor"
_STAGE_NODE = "spark.blacklist.stage.maxFailedExecutorsPerNode"
_TASK_EXECUTOR = "spark.blacklist.task.maxTaskAttemptsPerExecutor"
_TASK_NODE = "spark.blacklist.task.maxTaskAttemptsPerNode"
_APP_EXECUTOR = "spark.blacklist.application.maxFailedTasksPerExecutor"
_APP_NODE = "spark.blacklist.application.maxFailedExecutorsPerNode"

SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = (_TASK_MAX_FAILURES, _MAX_INT)

SPARK_CONF_BLACKLIST_DISABLED = (_ENABLED, "false")
SPARK_CONF_BLACKLIST_ENABLED = (_ENABLED, "true")

# Within a stage.
SPARK_CONF_REUSE_FAILED_EXECUTOR = (_STAGE_EXECUTOR, _MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (_STAGE_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILING_NODE = (_STAGE_NODE, _MAX_INT_MINUS_ONE)
SPARK_CONF_DONT_REUSE_FAILING_NODE = (_STAGE_NODE, "1")

# For one task.
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (_TASK_EXECUTOR, _MAX_INT)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK = (_TASK_EXECUTOR, "2")
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK = (_TASK_EXECUTOR, "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (_TASK_NODE, _MAX_INT_MINUS_ONE)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK = (_TASK_NODE, "2")
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK = (_TASK_NODE, "1")

# For the whole application.
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (_APP_EXECUTOR, _MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = (_APP_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = (_APP_NODE, _MAX_INT_MINUS_ONE)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = (_APP_NODE, "1")

# What Spark has without any of them.
SPARK_CONF_DEFAULT_VALUES = {
    _TASK_MAX_FAILURES: "4",
    _ENABLED: "false",
    _STAGE_EXECUTOR: "2",
    _STAGE_NODE: "2",
    _TASK_EXECUTOR: "1",
    _TASK_NODE: "2",
    _APP_EXECUTOR: "2",
    _APP_NODE: "2",
}
