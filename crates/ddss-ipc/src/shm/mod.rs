//! Shared memory of a client and its daemon.
//!
//! `layout` places the parts of a client's memory, of which `ring` implements the slots and `slot_bitmap` the
//! allocation of the arena. `mapped_ring` is a ring in a mapping. `service_page` and `status_page` are pages that
//! only the daemon writes.

#[cfg(not(loom))]
pub(crate) mod layout;
#[cfg(not(loom))]
pub(crate) mod mapped_ring;
pub(crate) mod ring;
#[cfg(not(loom))]
pub(crate) mod service_page;
pub(crate) mod slot_bitmap;
#[cfg(not(loom))]
pub(crate) mod status_page;
