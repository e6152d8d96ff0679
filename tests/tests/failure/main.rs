//! Processes, networks and disks that fail: what was acknowledged is there, and every call ends in time.

mod control_plane;
mod critical_tasks;
mod full;
mod half_open;
mod overload;
mod partition;
mod restart;
mod shutdown;
