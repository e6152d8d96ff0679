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

/// Bytes that are compared together.
const BLOCK_BYTES: usize = 64;

/// Replaces `runs` by the changed runs of a page. They are exact to the byte: an unchanged byte between two runs may be
/// another rank's, and its old value must not reach the home.
///
/// # Panics
/// If twin and page differ in length.
pub fn find_runs(twin: &[u8], page: &[u8], runs: &mut Vec<Run>) {
    assert_eq!(twin.len(), page.len(), "a twin is as long as its page");
    runs.clear();
    let mut open: Option<u32> = None;
    for (index, (old, new)) in twin.chunks(BLOCK_BYTES).zip(page.chunks(BLOCK_BYTES)).enumerate() {
        if open.is_none() && old == new {
            continue;
        }
        let base = (index * BLOCK_BYTES) as u32;
        for (at, (old, new)) in (base..).zip(old.iter().zip(new)) {
            match (open, old != new) {
                (None, true) => open = Some(at),
                (Some(offset), false) => {
                    runs.push(Run { offset, bytes: at - offset });
                    open = None;
                }
                _ => {}
            }
        }
    }
    if let Some(offset) = open {
        runs.push(Run { offset, bytes: page.len() as u32 - offset });
    }
}
