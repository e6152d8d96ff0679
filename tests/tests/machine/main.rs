//! Tests that need hardware: RDMA adapters, several memory nodes. The emulated machine of `scripts/vm` has both.

mod numa;
mod two_adapters;
