//! Home frames of a rank, as a checkpoint reads them.

use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::OwnedFd;

/// Home frames of a rank. They are read from the file: frames that nobody has written take no memory.
#[derive(Debug)]
pub(crate) struct HomeFrames {
    pub(super) file: OwnedFd,
    pub(super) offset: u64,
    pub(super) page_bytes: u32,
    pub(super) pages: u32,
}

impl HomeFrames {
    /// Returns the bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    /// Returns the number of pages of the space.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Reads the frame of a page.
    pub(crate) fn read(&self, page: u32, into: &mut [u8]) -> io::Result<()> {
        let at = self.offset + u64::from(page) * u64::from(self.page_bytes);
        // A read of a file in memory is short only at its end.
        if pread(&self.file, &mut *into, at)? == into.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Returns the pages with a byte other than 0, in order.
    pub(crate) fn written(&self) -> io::Result<Vec<u32>> {
        let (page_bytes, mut written) = (u64::from(self.page_bytes), Vec::new());
        let end = self.offset + u64::from(self.pages) * page_bytes;
        let (mut at, mut frame) = (self.offset, vec![0; self.page_bytes()]);
        while at < end {
            let start = match seek(&self.file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                other => other?.min(end),
            };
            at = if start < end { seek(&self.file, SeekFrom::Hole(start))?.min(end) } else { end };
            let (first, last) = ((start - self.offset) / page_bytes, (at - self.offset).div_ceil(page_bytes));
            for page in first as u32..last as u32 {
                self.read(page, &mut frame)?;
                if frame.iter().any(|byte| *byte != 0) {
                    written.push(page);
                }
            }
        }
        written.dedup();
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RankMemory;
    use ddss_dsm_core::{Config, LogShape, Memory, Ordering, PageId, Protocol, Rank, Stamps, Tuning};

    #[test]
    fn written_frames_are_found_and_no_others() {
        // If this broke, a checkpoint would lack pages, or every checkpoint would have all pages of the space.
        let config = Config {
            rank: Rank::ZERO,
            ranks: 1,
            pages: 2048,
            page_bytes: 4096,
            message_bytes: 1024,
            protocol: Protocol::NewGenDsm,
            ordering: Ordering::Stamped,
            stamps: Stamps::PerHome,
            log: LogShape::default(),
            tuning: Tuning::default(),
        };
        let mut memory = RankMemory::create(&config, None).unwrap();
        let frames = memory.home_frames().unwrap();
        assert_eq!(frames.written().unwrap(), [0_u32; 0]);
        for page in [0, 1, 700, 2047] {
            memory.write_home(PageId(page), 4095, &[page as u8 | 1]);
        }
        // Written, but with zeros.
        memory.write_home(PageId(9), 0, &[0]);
        // The next area begins behind the last page.
        memory.claim_home(PageId(0), 1);
        assert_eq!(frames.written().unwrap(), [0, 1, 700, 2047]);
        let mut frame = [0; 4096];
        frames.read(700, &mut frame).unwrap();
        assert_eq!((frame[4094], frame[4095]), (0, 700_u32 as u8 | 1));
    }
}
