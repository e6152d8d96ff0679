//! Areas of memory as the fabric and the clients address them.

use super::area_access::AreaAudiences;
use super::memory::NodeMemory;
use ddss_core::{Audience, Storage, area_of, offset_of};
use ddss_ipc::MemoryError;
use ddss_verbs::{Fabric, RegionId, Trust};

/// Fabric regions and readers of the areas, by area.
pub(crate) struct RegisteredAreas {
    regions: Vec<Option<RegionId>>,
    audiences: AreaAudiences,
}

impl RegisteredAreas {
    pub(crate) fn new(audiences: AreaAudiences) -> Self {
        Self { regions: Vec::new(), audiences }
    }

    /// Opens an area, registers it with the fabric, and grants its audience access.
    pub(crate) fn publish(
        &mut self,
        memory: &mut NodeMemory,
        fabric: &mut dyn Fabric,
        area: usize,
        audience: Audience,
        storage: Storage,
    ) -> Result<(), String> {
        self.register(memory, fabric, area, storage)?;
        self.audiences.record(area, audience, memory.area_file(area, storage).0);
        Ok(())
    }

    /// Opens an area and registers it with the fabric.
    pub(crate) fn register(
        &mut self,
        memory: &mut NodeMemory,
        fabric: &mut dyn Fabric,
        area: usize,
        storage: Storage,
    ) -> Result<(), String> {
        if self.regions.len() <= area {
            self.regions.resize(area + 1, None);
        }
        if self.regions[area].is_none() {
            let memory = memory.open_area(area, storage).map_err(|error| format_with_cause(&error))?;
            let bytes = memory.len() as u64;
            // Clients map an area read-only; only this thread writes it.
            let region = fabric.register(memory.descriptor(), Trust::Exclusive, 0, bytes);
            self.regions[area] = Some(region.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Returns the fabric region and the offset of a pool address.
    pub(crate) fn region_at(&self, place: u64) -> Option<(RegionId, u64)> {
        Some(((*self.regions.get(area_of(place))?)?, offset_of(place)))
    }
}

/// Formats a memory error with its cause: the system's own error says what to do.
pub(crate) fn format_with_cause(error: &MemoryError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
