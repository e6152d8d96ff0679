//! Pages in one file on a network file system: what an index does without DDSS.
//!
//! The file is read and written through libnfs (NFS version 3), which keeps no copies: each page is one call to the server,
//! so that readers on all nodes see what the writer wrote. The protocol does not promise that a read sees all of a write
//! or nothing of it, so each page carries a checksum, and one that does not fit is read again.

use std::thread;
use std::time::Duration;

use super::store::{PAGE_BYTES, Page, PageId, PageStore};
use crate::Error;
use crate::sys::NfsFile;

/// Where a page carries its checksum.
const CHECK: std::ops::Range<usize> = 8..12;
/// How often a page is read whose checksum does not fit.
const TRIES_MAX: u32 = 100;

/// Pages in a file on an NFS server.
#[derive(Debug)]
pub struct NfsPages {
    file: NfsFile,
    pages: u32,
}

impl NfsPages {
    /// Opens the file at `path` of what the server at `host` exports as `export`; makes it if it is not there. A page that
    /// was never written is one of zeros.
    pub fn open(host: &str, export: &str, path: &str, pages: u32) -> Result<NfsPages, Error> {
        Ok(NfsPages { file: NfsFile::open(host, export, path)?, pages })
    }
}

fn checksum(page: &Page) -> [u8; 4] {
    let check = crc32c::crc32c_append(crc32c::crc32c(&page[..CHECK.start]), &page[CHECK.end..]);
    // Never zero: that is a page without one.
    check.max(1).to_le_bytes()
}

impl PageStore for NfsPages {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        for _ in 0..TRIES_MAX {
            let read = self.file.read_at(page.offset(), into)?;
            into[read..].fill(0);
            let (was, is) = (<[u8; 4]>::try_from(&into[CHECK]).expect("four bytes"), checksum(into));
            if was == is || into.iter().all(|&byte| byte == 0) {
                return Ok(());
            }
            thread::sleep(Duration::from_micros(200));
        }
        Err(Error::Broken { page, why: "its checksum does not fit" })
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        let mut checked = *bytes;
        checked[CHECK].copy_from_slice(&checksum(bytes));
        match self.file.write_at(page.offset(), &checked)? {
            PAGE_BYTES => Ok(()),
            written => Err(Error::Protocol { server: "the nfs server", answer: format!("{written} bytes written") }),
        }
    }
}
