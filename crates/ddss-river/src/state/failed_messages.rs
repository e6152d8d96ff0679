//! Messages that are kept aside.

use std::collections::VecDeque;

/// Failed messages that a process keeps aside at most, and their bytes: the oldest go first.
const FAILED_MAX: usize = 64;
const FAILED_BYTES_MAX: usize = 64 << 20;

/// Messages that ended or were rejected by too many consumers, for the application.
#[derive(Debug, Default)]
pub(super) struct FailedMessages(VecDeque<Vec<u8>>);

impl FailedMessages {
    pub(super) fn add(&mut self, message: Vec<u8>) {
        self.0.push_back(message);
        let bytes = |messages: &VecDeque<Vec<u8>>| messages.iter().map(Vec::len).sum::<usize>();
        while self.0.len() > FAILED_MAX || self.0.len() > 1 && bytes(&self.0) > FAILED_BYTES_MAX {
            self.0.pop_front();
        }
    }

    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0).into()
    }
}
