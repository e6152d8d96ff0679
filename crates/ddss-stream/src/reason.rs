//! Reasons for which a stream uses its transport.

/// Reason that `ddss streams` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Reason {
    /// Too few bytes so far.
    Undecided = 0,
    /// Both ends use shared memory.
    SharedMemory = 1,
    /// The acceptor offered shared memory, the connector has not taken it.
    Offered = 2,
    /// The peer has no library, or another user runs it.
    NoLibrary = 3,
    /// A rule chose TCP.
    Rule = 4,
    /// The system had no memory or descriptor for it.
    NoResources = 5,
    /// The peer never offered.
    NoOffer = 6,
    /// The program made a call that needs the kernel's stream (zero copy, out-of-band data, a descriptor sent elsewhere).
    KernelCall = 7,
    /// TCP bytes arrived behind the start of the ring: a call of the peer went past its library. The stream was reset.
    Bypassed = 8,
    /// The program uses io_uring.
    IoUring = 9,
    /// The program chose the Sockets Direct Protocol.
    Wire = 10,
    /// A rule chose the Sockets Direct Protocol.
    WireRule = 11,
    /// A rule chose the Sockets Direct Protocol, and the peer does not speak it.
    NoWire = 12,
    /// A rule chose the Sockets Direct Protocol, and the program has no pump that could carry it.
    NoPump = 13,
}

impl Reason {
    /// Returns the reason with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        const ALL: [Reason; 14] = [
            Reason::Undecided,
            Reason::SharedMemory,
            Reason::Offered,
            Reason::NoLibrary,
            Reason::Rule,
            Reason::NoResources,
            Reason::NoOffer,
            Reason::KernelCall,
            Reason::Bypassed,
            Reason::IoUring,
            Reason::Wire,
            Reason::WireRule,
            Reason::NoWire,
            Reason::NoPump,
        ];
        ALL.get(number as usize).copied()
    }

    /// Returns the words for a table.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Undecided => "too few bytes so far",
            Self::SharedMemory => "both ends have the library",
            Self::Offered => "the peer has not taken the offer",
            Self::NoLibrary => "the peer has no library",
            Self::Rule => "a rule says tcp",
            Self::NoResources => "no descriptor or memory left",
            Self::NoOffer => "the peer made no offer",
            Self::KernelCall => "a call needs the kernel's stream",
            Self::Bypassed => "reset: the peer wrote past its library",
            Self::IoUring => "the program uses io_uring",
            Self::Wire => "the program chose the wire",
            Self::WireRule => "a rule chose the wire",
            Self::NoWire => "the peer does not speak the wire",
            Self::NoPump => "a rule says wire, and no pump is there",
        }
    }
}
