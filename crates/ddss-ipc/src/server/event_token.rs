//! Tokens of the acceptor's epoll events.

use rustix::event::epoll;

/// Subject of an epoll event, packed into its 64 bits: kind, index, low bits of the generation. The generation keeps an
/// event of a departed client from affecting the next client of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventToken {
    Signal,
    Listener,
    Handshake(u32),
    Client(u32, u32),
}

impl EventToken {
    pub(super) fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Signal => 0,
            Self::Listener => 1 << 62,
            Self::Handshake(index) => 2 << 62 | u64::from(index),
            Self::Client(index, generation) => 3 << 62 | u64::from(generation & 0x3fff_ffff) << 32 | u64::from(index),
        })
    }

    pub(super) fn of(data: epoll::EventData) -> Self {
        let bits = data.u64();
        match bits >> 62 {
            0 => Self::Signal,
            1 => Self::Listener,
            2 => Self::Handshake(bits as u32),
            _ => Self::Client(bits as u32, (bits >> 32) as u32 & 0x3fff_ffff),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_token_round_trips() {
        // If this failed, the end of one client would free the slot of another.
        for token in [
            EventToken::Signal,
            EventToken::Listener,
            EventToken::Handshake(63),
            EventToken::Client(1023, 0x3fff_ffff),
            EventToken::Client(0, 1),
        ] {
            assert_eq!(EventToken::of(token.data()), token);
        }
    }
}
