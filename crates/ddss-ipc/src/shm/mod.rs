//! Shared memory of a client and its daemon: layout, rings, the service page, the status page.

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
