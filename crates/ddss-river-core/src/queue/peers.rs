//! Consumers, as a producer knows them.

use crate::limits::PEERS_MAX;
use crate::model::{Attempt, ConsumerId, Load};

/// A consumer, as a producer knows it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) id: ConsumerId,
    pub(super) is_connected: bool,
    /// True between the request of the consumer and its withdrawal.
    is_open: bool,
    /// Slots of the ring with a message that is not acknowledged, a bit each.
    used: u64,
    /// Messages that the consumer said to have begun.
    begun: u16,
    /// Load at the last acknowledgement.
    load: Load,
    /// Messages of this producer since then.
    sent_since: u32,
    /// The recall that the consumer has not answered.
    pub(super) recall: Option<Attempt>,
    /// Messages that the consumer may have begun before it was lost: places and indices.
    pub(super) suspects: Vec<(u16, u64)>,
}

impl Peer {
    fn new(id: ConsumerId, window: u32) -> Self {
        let suspects = Vec::with_capacity(window as usize);
        let (is_connected, is_open, load) = (false, false, Load::default());
        Self { id, is_connected, is_open, used: 0, begun: 0, load, sent_since: 0, recall: None, suspects }
    }

    /// Returns the messages that the consumer has not acknowledged.
    pub(super) const fn unacknowledged(&self) -> u32 {
        self.used.count_ones()
    }

    /// Returns true if the consumer may have a message of this producer that it has not begun.
    pub(super) const fn has_unbegun(&self) -> bool {
        self.is_connected && self.unacknowledged() > self.begun as u32
    }

    /// Counts a message that the consumer has begun.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    /// Takes over the reported load.
    pub(super) fn report(&mut self, load: Load) {
        self.load = load;
        self.sent_since = 0;
    }

    /// Returns the time of a message, or `None` if the consumer has not acknowledged any.
    pub(super) fn service_us(&self) -> Option<u32> {
        (self.load.service_us > 0).then_some(self.load.service_us)
    }

    /// Returns the expected time until the consumer has processed all that it has and `more`. The caller says how long a
    /// message takes where the consumer has not acknowledged any.
    pub(super) fn expected_wait_us(&self, more: u32, default_us: u32) -> u64 {
        let service_us = self.service_us().unwrap_or(default_us);
        Load { service_us, ..self.load }.wait_us(self.sent_since.saturating_add(more))
    }
}

/// The consumers of a producer, and those among them that have a credit.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    /// In the order of their numbers.
    list: Vec<Peer>,
    /// Consumers with a credit, in no order.
    ready: Vec<ConsumerId>,
    all_slots: u64,
}

impl Peers {
    pub(super) fn new(window: u16) -> Self {
        Self { list: Vec::new(), ready: Vec::new(), all_slots: u64::MAX >> (u64::BITS - u32::from(window)) }
    }

    fn position(&self, id: ConsumerId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |peer| peer.id)
    }

    pub(super) fn get(&self, id: ConsumerId) -> Option<&Peer> {
        self.position(id).ok().map(|position| &self.list[position])
    }

    pub(super) fn get_mut(&mut self, id: ConsumerId) -> Option<&mut Peer> {
        self.position(id).ok().map(|position| &mut self.list[position])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// Returns the consumers with a credit.
    pub(super) fn ready(&self) -> &[ConsumerId] {
        &self.ready
    }

    /// Connects a consumer, and adds it if it is new.
    ///
    /// # Panics
    /// If the consumer is connected, or there are [`PEERS_MAX`] others.
    pub(super) fn connect(&mut self, id: ConsumerId) -> &mut Peer {
        let window = self.all_slots.count_ones();
        let position = self.position(id).unwrap_or_else(|position| {
            assert!(self.list.len() < PEERS_MAX, "a producer has at most {PEERS_MAX} consumers");
            self.list.insert(position, Peer::new(id, window));
            position
        });
        let peer = &mut self.list[position];
        assert!(!peer.is_connected, "{id} is connected already");
        peer.is_connected = true;
        peer
    }

    /// Opens the ring of a connected consumer that asks, or closes that of one that withdraws.
    pub(super) fn set_open(&mut self, id: ConsumerId, is_open: bool) {
        if let Some(peer) = self.get_mut(id) {
            peer.is_open = is_open && peer.is_connected;
            self.update_ready(id);
        }
    }

    /// Ends a connection: the rings are empty then.
    pub(super) fn disconnect(&mut self, id: ConsumerId) {
        if let Some(peer) = self.get_mut(id) {
            *peer = Peer { suspects: std::mem::take(&mut peer.suspects), ..Peer::new(id, 0) };
            self.update_ready(id);
        }
    }

    /// Forgets a dead consumer.
    pub(super) fn remove(&mut self, id: ConsumerId) {
        self.disconnect(id);
        if let Ok(position) = self.position(id) {
            self.list.remove(position);
        }
    }

    /// Uses a credit of a consumer. Returns the slot.
    pub(super) fn use_slot(&mut self, id: ConsumerId) -> u16 {
        let all_slots = self.all_slots;
        let peer = self.get_mut(id).expect("a known consumer");
        let slot = (!peer.used & all_slots).trailing_zeros();
        assert!(peer.is_open && slot < u64::BITS, "{id} has no credit");
        peer.used |= 1 << slot;
        peer.sent_since = peer.sent_since.saturating_add(1);
        self.update_ready(id);
        slot as u16
    }

    /// Frees a slot, whose message has left the consumer.
    pub(super) fn free_slot(&mut self, id: ConsumerId, slot: u16, had_begun: bool) {
        let peer = self.get_mut(id).expect("a known consumer");
        peer.used &= !(1 << slot);
        peer.begun = peer.begun.saturating_sub(u16::from(had_begun));
        self.update_ready(id);
    }

    /// Adds a consumer to those with a credit, or removes it.
    fn update_ready(&mut self, id: ConsumerId) {
        let all_slots = self.all_slots;
        let is_ready = self.get(id).is_some_and(|peer| peer.is_open && peer.used != all_slots);
        match (self.ready.iter().position(|other| *other == id), is_ready) {
            (None, true) => self.ready.push(id),
            (Some(position), false) => {
                self.ready.swap_remove(position);
            }
            (None, false) | (Some(_), true) => {}
        }
    }
}
