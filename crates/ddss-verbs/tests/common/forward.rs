//! A fabric that forwards to another one.

use ddss_verbs::Fabric;

/// Selects the fabric to which [`forward_fabric`] forwards.
pub(crate) trait Forward {
    fn inner(&self) -> &dyn Fabric;
    /// Selects it for a call that may act, and prepares for the call.
    fn inner_mut(&mut self) -> &mut dyn Fabric;
}

/// Implements `Fabric` for a type that implements [`Forward`].
macro_rules! forward_fabric {
    ($type:ty) => {
        $crate::common::forward::forward_fabric! { $type:
            (&self) self.inner: fn capabilities() -> ddss_verbs::Capabilities;
            (&mut self) self.inner_mut: fn listen(address: std::net::SocketAddr) -> std::io::Result<std::net::SocketAddr>;
            (&mut self) self.inner_mut: fn connect(address: std::net::SocketAddr, hello: &[u8]) -> Result<ddss_verbs::PeerId, ddss_verbs::FabricError>;
            (&mut self) self.inner_mut: fn accept(peer: ddss_verbs::PeerId, hello: &[u8]) -> Result<(), ddss_verbs::FabricError>;
            (&mut self) self.inner_mut: fn reject(peer: ddss_verbs::PeerId, reason: &[u8]) -> Result<(), ddss_verbs::FabricError>;
            (&mut self) self.inner_mut: fn close(peer: ddss_verbs::PeerId);
            (&mut self) self.inner_mut: fn register(memory: std::os::fd::BorrowedFd<'_>, trust: ddss_verbs::Trust, offset: u64, bytes: u64) -> Result<ddss_verbs::RegionId, ddss_verbs::FabricError>;
            (&mut self) self.inner_mut: fn deregister(region: ddss_verbs::RegionId);
            (&mut self) self.inner_mut: fn expose(peer: ddss_verbs::PeerId, region: ddss_verbs::RegionId, offset: u64, bytes: u64, rights: ddss_verbs::Rights) -> Result<ddss_verbs::Window, ddss_verbs::FabricError>;
            (&mut self) self.inner_mut: fn withdraw(peer: ddss_verbs::PeerId, key: u32);
            (&mut self) self.inner_mut: fn post(work: &[ddss_verbs::Work<'_>]) -> Result<(), ddss_verbs::PostError>;
            (&mut self) self.inner_mut: fn abandon(peer: ddss_verbs::PeerId, tag: u64) -> bool;
            (&mut self) self.inner_mut: fn poll(events: &mut ddss_verbs::Events) -> usize;
            (&mut self) self.inner_mut: fn arm() -> bool;
            (&mut self) self.inner_mut: fn disarm();
            (&self) self.inner: fn descriptor() -> std::os::fd::BorrowedFd<'_>;
            (&self) self.inner: fn next_deadline() -> Option<std::time::Instant>;
        }
    };
    ($type:ty: $(($($receiver:tt)+) $this:ident.$inner:ident: fn $name:ident($($argument:ident: $argument_type:ty),*) $(-> $answer:ty)?;)*) => {
        impl ddss_verbs::Fabric for $type {
            $(fn $name($($receiver)+, $($argument: $argument_type),*) $(-> $answer)? {
                $crate::common::Forward::$inner($this).$name($($argument),*)
            })*
        }
    };
}

pub(crate) use forward_fabric;
