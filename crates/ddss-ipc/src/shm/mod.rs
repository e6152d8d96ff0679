//! Shared memory of a client and its daemon.
//!
//! `layout` places the parts of a client's memory, of which `ring` implements the slots and `slot_bitmap` the
//! allocation of the arena. `service_page` and `status_page` are pages that only the daemon writes. `area_mapping` maps
//! segments read-only.

#[cfg(not(loom))]
pub(crate) mod area_mapping;
#[cfg(not(loom))]
pub(crate) mod layout;
pub(crate) mod ring;
#[cfg(not(loom))]
pub(crate) mod service_page;
pub(crate) mod slot_bitmap;
#[cfg(not(loom))]
pub(crate) mod status_page;
