//! Places where a fabric carries out its work, so that a protocol above it does not do the same work again.

/// Place where a fabric carries out a part of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The adapter.
    Adapter,
    /// The kernel.
    Kernel,
    /// An instruction of the processor, such as CRC32.
    Processor,
    /// This process, byte for byte.
    Software,
    /// Not carried out at all.
    Absent,
}

/// Places where a fabric carries out its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Parts {
    /// Checksum of a frame.
    pub checksum: Place,
    /// Assignment of incoming packets to connections.
    pub demultiplexing: Place,
    /// Markers in the stream of frames.
    pub markers: Place,
    /// Cutting of messages into frames.
    pub segmentation: Place,
    /// Queue of messages that wait for the network.
    pub send_queue: Place,
    /// Bound on what a sender has in flight.
    pub flow_control: Place,
}

impl Parts {
    /// Returns the parts of iWARP in user space on the kernel's TCP, with what this side asks for.
    #[must_use]
    pub const fn of_user_space(has_checksums: bool, has_markers: bool) -> Self {
        Self {
            checksum: if has_checksums { Place::Processor } else { Place::Absent },
            demultiplexing: Place::Kernel,
            markers: if has_markers { Place::Software } else { Place::Absent },
            segmentation: Place::Software,
            send_queue: Place::Software,
            flow_control: Place::Kernel,
        }
    }

    /// Returns the parts of an adapter. A sender to a peer without posted receive buffers is not bounded: the peer answers "not ready", or
    /// the connection ends.
    #[must_use]
    pub const fn of_adapter(is_iwarp: bool) -> Self {
        Self {
            checksum: Place::Adapter,
            demultiplexing: Place::Adapter,
            markers: if is_iwarp { Place::Adapter } else { Place::Absent },
            segmentation: Place::Adapter,
            send_queue: Place::Adapter,
            flow_control: Place::Absent,
        }
    }

    /// Returns the parts of the simulated network: whole messages, without a bound.
    #[must_use]
    pub const fn of_simulation() -> Self {
        Self {
            checksum: Place::Absent,
            demultiplexing: Place::Software,
            markers: Place::Absent,
            segmentation: Place::Absent,
            send_queue: Place::Software,
            flow_control: Place::Absent,
        }
    }
}
