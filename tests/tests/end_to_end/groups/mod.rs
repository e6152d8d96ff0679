//! Groups of processes, and what stands on them.

mod members;
mod shared_pages;
