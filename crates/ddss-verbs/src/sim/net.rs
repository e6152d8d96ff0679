//! The simulated network: its nodes, its clock and its faults.

use std::time::Duration;

use super::fabric::Sim;
use super::state::{SharedState, SimConfig};

/// A simulated network. Clones refer to the same network.
#[derive(Clone, Debug)]
pub struct SimNet(SharedState);

impl SimNet {
    /// Creates a network without nodes.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self(SharedState::new(config))
    }

    /// Adds a node.
    ///
    /// # Panics
    /// No descriptor is available.
    #[must_use]
    pub fn node(&self) -> Sim {
        let (node, seed) = self.0.lock().add_node();
        Sim::new(self.0.clone(), node, seed)
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Advances the virtual time.
    pub fn advance(&self, span: Duration) {
        self.0.lock().now += span;
    }

    /// Advances the virtual time to the next arrival. False if nothing is in flight.
    pub fn advance_to_next(&self) -> bool {
        let mut state = self.0.lock();
        let packets = state.links.iter().flatten().filter_map(|end| end.inbox.front().map(|packet| packet.0));
        let connect_requests = state
            .connect_requests
            .values()
            .filter_map(|connect_requests| connect_requests.front().map(|request| request.due));
        let Some(due) = packets.chain(connect_requests).min() else { return false };
        state.now = state.now.max(due);
        true
    }

    /// Breaks every connection between two nodes. A part of the packets in flight still arrives.
    pub fn cut(&self, a: &Sim, b: &Sim) {
        let mut state = self.0.lock();
        for link in 0..state.links.len() {
            let nodes = [state.links[link][0].node, state.links[link][1].node];
            if nodes == [a.node(), b.node()] || nodes == [b.node(), a.node()] {
                state.break_link(link);
            }
        }
    }

    /// Kills a node: its connections break, and it must not be polled any more.
    pub fn kill(&self, node: &Sim) {
        self.0.lock().kill(node.node());
    }
}
