"""The metadata store of a cluster: Apache ZooKeeper, through kazoo."""
