"""More than one core and more than one machine, by dask.distributed: the values of a serial sweep, to the bit.

The data are cut into fixed shards (`shards`), and each setting on each shard is a unit of work (`unit`), handed out by
the client (`crew`) to processes of this machine or to the workers of a cluster that the user runs (`connection`). What
comes back is added up in the order of the shards (`spread`). Only the client writes results, in the settings' order.
"""

from softq.sweeps.cluster.connection import check_workers, connected
from softq.sweeps.cluster.spread import Refused, Spread, opened_bench

__all__ = ["Refused", "Spread", "check_workers", "connected", "opened_bench"]
