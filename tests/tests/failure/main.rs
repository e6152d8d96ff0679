//! Failures of processes, networks and disks: acknowledged data survives, and every call ends in time.

mod allocate_many;
mod away;
mod control_plane;
mod critical_tasks;
mod dsm;
mod full;
mod half_open;
mod large_values;
mod overload;
mod partition;
mod replicated_large_values;
mod restart;
mod river;
mod shutdown;
mod small_segments;
