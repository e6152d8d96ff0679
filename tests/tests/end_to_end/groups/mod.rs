//! Groups of processes, and what stands on them.

mod broken_ranks;
mod c_programs;
mod dsm_programs;
mod members;
mod page_faults;
mod shared_pages;
mod snapshots;
