//! Connections between a producer and a consumer.

use super::plan::Member;

/// The connection between a producer and a consumer, and the one that follows it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Link {
    /// Number of the connection. What was sent under an earlier number does not arrive.
    pub(crate) epoch: u32,
    /// True if what is sent arrives.
    pub(crate) is_intact: bool,
    /// True if the producer has not noticed an end.
    producer_has: bool,
    /// True if the consumer has not noticed an end.
    consumer_has: bool,
    last_at_producer_us: u64,
    last_at_consumer_us: u64,
}

impl Link {
    /// Begins a connection.
    pub(crate) fn connect(&mut self) {
        assert!(!self.producer_has && !self.consumer_has, "both sides have noticed the end");
        self.epoch += 1;
        (self.is_intact, self.producer_has, self.consumer_has) = (true, true, true);
    }

    /// Ends the connection: what is on its way is lost.
    pub(crate) fn cut(&mut self) {
        if self.is_intact {
            self.is_intact = false;
            self.epoch += 1;
        }
    }

    /// Returns true if a process has not noticed an end.
    pub(crate) const fn has(&self, member: Member) -> bool {
        match member {
            Member::Producer(_) => self.producer_has,
            Member::Consumer(_) => self.consumer_has,
        }
    }

    /// Notes that a process has noticed the end. Returns false if it had.
    pub(crate) fn drop_side(&mut self, member: Member) -> bool {
        match member {
            Member::Producer(_) => std::mem::take(&mut self.producer_has),
            Member::Consumer(_) => std::mem::take(&mut self.consumer_has),
        }
    }

    /// Returns true if both processes have noticed the end.
    pub(crate) const fn is_free(&self) -> bool {
        !self.producer_has && !self.consumer_has
    }

    /// Returns the time of an arrival, which is not before the one ahead of it.
    pub(crate) fn arrival_us(&mut self, to: Member, earliest_us: u64) -> u64 {
        let last = match to {
            Member::Producer(_) => &mut self.last_at_producer_us,
            Member::Consumer(_) => &mut self.last_at_consumer_us,
        };
        *last = earliest_us.max(*last);
        *last
    }
}
