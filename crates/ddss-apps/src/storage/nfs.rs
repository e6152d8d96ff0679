//! Page store in one file on NFS: the alternative without DDSS.
//!
//! The file is read and written through libnfs (NFS version 3), which keeps no copies: each page is one call to the
//! server, several of which can be in flight, so that readers on all nodes see the writer's pages. The protocol does
//! not promise that writes are atomic, so each page carries a checksum, and a page with a wrong checksum is read again.

use std::thread;
use std::time::Duration;

use super::store::PageStore;
use crate::Error;
use crate::page::{PAGE_BYTES, Page, PageId};
use crate::sys::{NFS_WINDOW, NfsFile};

/// Offset of the checksum in a page.
const CHECK: std::ops::Range<usize> = 8..12;
/// Maximum number of reads of a page with a wrong checksum.
const TRIES_MAX: u32 = 100;

/// Pages in a file on an NFS server.
#[derive(Debug)]
pub struct NfsPages {
    file: NfsFile,
    pages: u32,
}

impl NfsPages {
    /// Opens the file at `path` of the directory that the server at `host` exports as `export`; creates it if it does
    /// not exist. A page that was never written is zero.
    pub fn open(host: &str, export: &str, path: &str, pages: u32) -> Result<NfsPages, Error> {
        Ok(NfsPages { file: NfsFile::open(host, export, path)?, pages })
    }
}

/// Returns true if the page has the right checksum, or was never written.
fn is_whole(page: &Page) -> bool {
    page[CHECK] == checksum(page) || page.iter().all(|&byte| byte == 0)
}

fn checksum(page: &Page) -> [u8; 4] {
    let check = crc32c::crc32c_append(crc32c::crc32c(&page[..CHECK.start]), &page[CHECK.end..]);
    // Never zero, which marks a page without a checksum.
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
            if is_whole(into) {
                return Ok(());
            }
            thread::sleep(Duration::from_micros(200));
        }
        Err(Error::Broken { page, why: "its checksum does not fit" })
    }

    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut meanwhile = Some(meanwhile);
        for (pages, into) in pages.chunks(NFS_WINDOW).zip(into.chunks_mut(NFS_WINDOW)) {
            let run = || meanwhile.take().into_iter().for_each(|run| run());
            self.file.read_many(pages.iter().map(|page| page.offset()), into, run)?;
            for (&page, into) in pages.iter().zip(into) {
                if !is_whole(into) {
                    self.read_page(page, into)?;
                }
            }
        }
        meanwhile.into_iter().for_each(|run| run());
        Ok(())
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
