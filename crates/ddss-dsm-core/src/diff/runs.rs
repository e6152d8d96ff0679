//! Runs of changed bytes.

/// Consecutive bytes of a page that differ from its twin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Offset in the page.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

impl Run {
    /// Returns the offset behind the last byte.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.offset + self.bytes
    }
}

/// Bytes that are compared together: a bit for each in a `u64`.
const BLOCK_BYTES: usize = 64;

/// Replaces `runs` by the changed runs of a page. They are exact to the byte: an unchanged byte between two runs may be
/// another rank's, and its old value must not reach the home.
///
/// # Panics
/// If twin and page differ in length.
pub fn find_runs(twin: &[u8], page: &[u8], runs: &mut Vec<Run>) {
    assert_eq!(twin.len(), page.len(), "a twin is as long as its page");
    runs.clear();
    if twin == page {
        return;
    }
    let mut finder = Finder { runs, open: None };
    let ((olds, old_rest), (news, new_rest)) = (twin.as_chunks::<BLOCK_BYTES>(), page.as_chunks::<BLOCK_BYTES>());
    for (index, (old, new)) in olds.iter().zip(news).enumerate() {
        finder.add(changed_bytes(old, new), (index * BLOCK_BYTES) as u32);
    }
    let rest = old_rest.iter().zip(new_rest).rev().fold(0, |bits, (old, new)| bits << 1 | u64::from(old != new));
    finder.add(rest, (page.len() - new_rest.len()) as u32);
    finder.close(page.len() as u32);
}

/// Runs that are found, and the one whose end is not found yet.
struct Finder<'a> {
    runs: &'a mut Vec<Run>,
    open: Option<u32>,
}

impl Finder<'_> {
    /// Adds a block at an offset: a bit for each byte, the lowest for the first one. An end behind the page stays open.
    fn add(&mut self, changed: u64, offset: u32) {
        let mut at = 0;
        while at < u64::BITS {
            // Bytes up to the next change from equal to changed, or back.
            let others = if self.open.is_some() { !changed } else { changed };
            let other = others >> at;
            if other == 0 {
                return;
            }
            at += other.trailing_zeros();
            if self.open.is_some() {
                self.close(offset + at);
            } else {
                self.open = Some(offset + at);
            }
        }
    }

    fn close(&mut self, end: u32) {
        if let Some(offset) = self.open.take() {
            self.runs.push(Run { offset, bytes: end - offset });
        }
    }
}

/// Returns a bit for each byte, the lowest for the first one: set if it differs.
fn changed_bytes(old: &[u8; BLOCK_BYTES], new: &[u8; BLOCK_BYTES]) -> u64 {
    if old == new {
        return 0;
    }
    // No early end: the compiler compares many bytes at once.
    if old.iter().zip(new).fold(true, |differ, (old, new)| differ & (old != new)) {
        return u64::MAX;
    }
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let ((olds, _), (news, _)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
    olds.iter().zip(news).rev().fold(0, |bits, (old, new)| {
        let differences = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        // The highest bit of each byte that is not zero, and then these bits side by side.
        let high = (((differences & LOW) + LOW) | differences) & !LOW;
        bits << 8 | (high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}
