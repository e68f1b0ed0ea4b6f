"""More than one core and more than one machine, by dask.distributed: the values of a serial sweep, to the bit.

The data are cut into fixed shards (`shards`), and each setting on each shard is a unit of work that a worker measures
(`worker`). The client gives units to processes of this machine or to the workers of a cluster that the user runs
(`connection`, `scheduler`), and adds up what comes back in the order of the shards (`evaluator`). Only the client
writes results, in the settings' order.

What dask.distributed does here: processes, transport, and lifetimes. A worker's workspace is the result of a task: the
worker keeps it until the client lets go of it or is gone. What it does not do: it has no limit on the time of a task,
counts the deaths of workers without saying where, and sets plugins up on every worker, where one that has another
softq, or none, would fail to start. So the client itself chooses who measures what, one unit per thread of a worker.
"""

from softq.sweeps.distributed.connection import check_workers, connect
from softq.sweeps.distributed.evaluator import open_evaluator

__all__ = ["check_workers", "connect", "open_evaluator"]
