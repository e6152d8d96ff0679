//! Channels that no thread holds, and the state of a channel between two holders.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::hangup_monitor::HangupMonitor;
use crate::transport::channel_transport::ChannelTransport;
use crate::transport::sysv_timeout::TimeoutThread;

/// State of a channel that outlives its holder.
pub(crate) struct ChannelState {
    pub(crate) index: u8,
    pub(crate) outstanding: usize,
    pub(crate) transport: Box<dyn ChannelTransport>,
}

impl ChannelState {
    /// Discards completions of an earlier holder. Returns true when none of its requests is in flight.
    pub(crate) fn drain(&mut self) -> bool {
        while self.outstanding > 0 && self.transport.take().is_some() {
            self.outstanding -= 1;
        }
        self.outstanding == 0
    }
}

/// Channels that no thread holds. Dropped with the attachment or the last channel, whichever comes later.
pub(crate) struct FreeChannels {
    channels: Mutex<Vec<Option<ChannelState>>>,
    /// Set under the strategies whose clients block on a queue.
    _timeout_thread: Option<TimeoutThread>,
    _hangup_monitor: Option<HangupMonitor>,
}

impl FreeChannels {
    /// Keeps the threads that serve the channels for as long as the channels.
    pub(crate) fn new(
        channels: Vec<ChannelState>,
        timeout_thread: Option<TimeoutThread>,
        hangup_monitor: Option<HangupMonitor>,
    ) -> Self {
        Self {
            channels: Mutex::new(channels.into_iter().map(Some).collect()),
            _timeout_thread: timeout_thread,
            _hangup_monitor: hangup_monitor,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<ChannelState>>> {
        // A panic of another thread leaves the list intact: the list only moves whole channels.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a channel whose earlier requests are all answered.
    pub(crate) fn take(&self) -> Option<ChannelState> {
        self.lock().iter_mut().find_map(|channel| channel.take_if(|channel| channel.drain()))
    }

    pub(crate) fn give_back(&self, state: ChannelState) {
        let index = usize::from(state.index);
        self.lock()[index] = Some(state);
    }
}
