//! Choice of the way in which a stream moves its bytes.

/// Place where a fabric carries out a part of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Places where a fabric carries out its parts: the uniform query of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capabilities {
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
    /// Reads from the memory of a peer, into memory that is borrowed for one call.
    pub remote_reads: Place,
}

/// Place of the bytes between the application and the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffering {
    /// Private buffers of the stream; the fabric copies or transfers from them.
    Private,
    /// The fabric's own queue: the stream copies around the gaps for markers.
    Integrated,
}

/// Handling of small writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coalescing {
    /// A small message waits for an acknowledgement or a timer (Nagle).
    Delay,
    /// A write is appended to the last frame while none of its bytes has left. Nothing waits on purpose.
    Append,
}

/// Bound on the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowControl {
    /// One credit for each receive buffer of the peer.
    Credits,
    /// The receiver stops receiving; the fabric's own flow control stops the sender.
    Receiver,
}

/// Way in which a stream moves its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Place of the bytes between the application and the fabric.
    pub buffering: Buffering,
    /// Handling of small writes.
    pub coalescing: Coalescing,
    /// Bound on the sender.
    pub flow_control: FlowControl,
    /// True if large writes may be advertised to be read in place.
    pub zero_copy: bool,
}

impl Plan {
    /// Returns the plan that avoids work which the fabric does as well.
    ///
    /// A fabric that keeps its send queue in this process copies every byte anyway, so the stream shares that copy.
    /// Its messages can then be appended to. Credits are redundant if the fabric bounds the sender. Zero copy remains
    /// for fabrics with private buffers: an integrated buffer holds nothing but messages.
    #[must_use]
    pub const fn of(fabric: &Capabilities) -> Plan {
        let has_own_queue = matches!(fabric.send_queue, Place::Software) && !matches!(fabric.markers, Place::Adapter);
        let bounds_sender = !matches!(fabric.flow_control, Place::Absent);
        if has_own_queue && bounds_sender {
            return Plan {
                buffering: Buffering::Integrated,
                coalescing: Coalescing::Append,
                flow_control: FlowControl::Receiver,
                zero_copy: false,
            };
        }
        Plan { zero_copy: !matches!(fabric.remote_reads, Place::Absent), ..Plan::basic() }
    }

    /// Returns the plan of the specification, without zero copy.
    #[must_use]
    pub const fn basic() -> Plan {
        Plan {
            buffering: Buffering::Private,
            coalescing: Coalescing::Delay,
            flow_control: FlowControl::Credits,
            zero_copy: false,
        }
    }

    /// Returns true if the plan needs a peer that can do without credits.
    #[must_use]
    pub const fn is_enhanced(&self) -> bool {
        matches!(self.flow_control, FlowControl::Receiver)
    }

    /// Returns the plan of both sides: this one if the peer can follow it, else that of the specification.
    #[must_use]
    pub const fn with_peer(self, peer_is_enhanced: bool) -> Plan {
        if self.is_enhanced() && !peer_is_enhanced { Plan::basic() } else { self }
    }
}
