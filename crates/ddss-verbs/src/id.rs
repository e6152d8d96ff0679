//! Handles of connections and registered memory.

use std::fmt;

use crate::slab::SlotId;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            /// Returns the handle as one number, for tables and logs.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                ((self.generation as u64) << 32) | self.index as u64
            }

            /// Restores a handle from [`Self::to_bits`]. A number that no fabric issued names nothing.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self { index: bits as u32, generation: (bits >> 32) as u32 }
            }
        }

        impl SlotId for $name {
            fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            fn index(self) -> u32 {
                self.index
            }

            fn generation(self) -> u32 {
                self.generation
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}.{}"), self.index, self.generation)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

handle! {
    /// Handle of one connection. A new connection to the same node gets a new id, and old ids name nothing.
    PeerId, "p"
}
handle! {
    /// Handle of one piece of registered memory.
    RegionId, "r"
}
