//! Lines of the log that strangers can cause: some a second, and how many were kept back. A log is a disk that is filled
//! otherwise, and each line is a system call of the thread that writes it.

use std::time::{Duration, Instant};

/// One kind of line.
#[derive(Debug)]
pub(crate) struct Seldom {
    since: Instant,
    written: u32,
    kept_back: u64,
}

impl Seldom {
    /// Lines of a kind in [`SPAN`](Self::SPAN).
    const LINES_MAX: u32 = 10;
    const SPAN: Duration = Duration::from_secs(1);

    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, written: 0, kept_back: 0 }
    }

    /// Whether a line may be written now; if so, how many before it were not.
    pub(crate) fn may(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= Self::SPAN {
            (self.since, self.written) = (now, 0);
        }
        if self.written == Self::LINES_MAX {
            self.kept_back += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_ten_lines_a_second_and_a_number() {
        // If this broke, whoever reaches a port could fill the disk with what the daemon says of him.
        let begin = Instant::now();
        let mut seldom = Seldom::new(begin);
        let written = (0..1000).filter(|_| seldom.may(begin).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!(seldom.may(begin + Seldom::SPAN / 2), None);
        assert_eq!(seldom.may(begin + Seldom::SPAN), Some(991));
        assert_eq!(seldom.may(begin + Seldom::SPAN), Some(0));
    }
}
