//! Errors of calls from C.

use crate::process::INDEX_END;
use ddss_dsm::{Failure, SpaceError};
use std::ffi::c_int;

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("this process is no rank of a space: call ddss_dsm_join first")]
    NotJoined,
    #[error("this process is a rank of a space already: call ddss_dsm_leave first")]
    Joined,
    #[error("another thread of this process makes a call of the space: one may at a time")]
    Busy,
    #[error("{0} is a null pointer")]
    Null(&'static str),
    #[error("{0} is not text in UTF-8, or has more than {1} bytes")]
    Text(&'static str, usize),
    #[error("{0} {1} is not below {max}", max = INDEX_END)]
    Index(&'static str, u32),
    #[error("{0:#x} is no address that ddss_dsm_malloc has returned, or its memory is free already")]
    NotAllocated(usize),
    #[error("the shared heap has no room for {0} bytes: join with more bytes on all ranks")]
    NoRoom(usize),
    #[error("the shared heap has no room for another block: it has {0}")]
    BlocksFull(usize),
    #[error("a rank distributes {0} variables between two barriers at most")]
    DistributionsFull(usize),
    #[error("rank {0} has the program at other addresses than this one: start it with `ddss dsm run --same-addresses`")]
    OtherAddresses(u16),
    #[error("only rank 0 starts functions on other ranks, and each of the other {0} ranks runs one")]
    Creation(u16),
    #[error(
        "the variables of the program include those of libddss_dsm_c.a: link the shared library to start functions on other ranks"
    )]
    Static,
    #[error("a call of the library has panicked, see its message: this process ends best")]
    Panicked,
    #[error(transparent)]
    Client(#[from] ddss::Error),
    #[error(transparent)]
    Space(#[from] SpaceError),
}

impl CallError {
    /// Returns the number that C gets. `ddss_dsm.h` names them.
    pub(crate) fn code(&self) -> c_int {
        const INVALID: c_int = -1;
        const LOST: c_int = -2;
        const TIMED_OUT: c_int = -3;
        const NO_ROOM: c_int = -4;
        const FAILED: c_int = -5;
        match self {
            Self::NotJoined | Self::Joined | Self::Busy | Self::Null(_) | Self::Text(..) | Self::Index(..) => INVALID,
            Self::NotAllocated(_) | Self::OtherAddresses(_) | Self::Creation(_) | Self::Static => INVALID,
            Self::NoRoom(_) | Self::BlocksFull(_) | Self::DistributionsFull(_) => NO_ROOM,
            Self::Panicked | Self::Client(_) => FAILED,
            Self::Space(error) => match error {
                SpaceError::PlaceLost | SpaceError::Failure(Failure::Lost(_) | Failure::Protocol(_)) => LOST,
                SpaceError::Missing { .. } | SpaceError::TimedOut(..) | SpaceError::Failure(Failure::GaveUp { .. }) => {
                    TIMED_OUT
                }
                SpaceError::NoRoom { .. }
                | SpaceError::RegionsFull { .. }
                | SpaceError::ViewsFull
                | SpaceError::Failure(Failure::Full(_)) => NO_ROOM,
                SpaceError::Failure(Failure::Misuse(..) | Failure::OutOfRange(..))
                | SpaceError::RegionName { .. }
                | SpaceError::RegionMismatch { .. }
                | SpaceError::RegionType { .. }
                | SpaceError::NotLaunched(_) => INVALID,
                _ => FAILED,
            },
        }
    }
}
