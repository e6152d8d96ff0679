//! Nodes of one cluster: founding, identity, membership, fabrics and shards.

mod cluster;
mod fabrics;
mod identity;
mod membership;
mod shards;
