//! A directory server over TCP, with one connection for each request, as in STORM.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zerocopy::{FromZeros, IntoBytes};

use super::chunk::Chunk;
use super::directory::Directory;
use crate::Error;

/// Timeout of either side.
const WORD_MAX: Duration = Duration::from_secs(20);

/// A directory server, on its own thread. It ends when this is dropped.
#[derive(Debug)]
pub struct DirectoryServer {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DirectoryServer {
    /// Starts a server at an address. Its thread first calls `enter`, which moves it to its namespace or core.
    pub fn start(
        address: IpAddr,
        chunks: Vec<Chunk>,
        enter: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<DirectoryServer, Error> {
        let over = Arc::new(AtomicBool::new(false));
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let what = format!("listening at {address}");
                let listening = enter().and_then(|()| TcpListener::bind((address, 0)).map_err(Error::system(what)));
                let listener = match listening {
                    Ok(listener) => listener,
                    // The caller gets the error; if it has gone, no thread needs it.
                    Err(error) => return drop(tell.send(Err(error))),
                };
                let own = listener.local_addr().map_err(Error::system("asking for an own address"));
                drop(tell.send(own));
                serve(&listener, &chunks, &over);
            }
        });
        let address =
            told.recv().unwrap_or_else(|_| Err(Error::Missing { what: "the server", why: "it died".into() }))?;
        Ok(DirectoryServer { address, over, thread: Some(thread) })
    }

    /// Returns a client of this server.
    pub fn client(&self) -> TcpDirectory {
        TcpDirectory { server: self.address }
    }
}

fn serve(listener: &TcpListener, chunks: &[Chunk], over: &AtomicBool) {
    // The thread sleeps in `accept`; a last connection wakes it to end.
    while let Ok((stream, _)) = listener.accept() {
        if over.load(Ordering::Acquire) {
            break;
        }
        // A broken connection concerns only its client.
        drop(answer(stream, chunks));
    }
}

fn answer(mut stream: TcpStream, chunks: &[Chunk]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WORD_MAX))?;
    let mut index = [0; 8];
    stream.read_exact(&mut index)?;
    let chunk = usize::try_from(u64::from_le_bytes(index)).ok().and_then(|index| chunks.get(index));
    let chunk = chunk.ok_or_else(|| std::io::Error::from(ErrorKind::InvalidInput))?;
    stream.write_all(chunk.as_bytes())
}

impl Drop for DirectoryServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let woken = TcpStream::connect_timeout(&self.address, WORD_MAX);
        if let (Some(thread), true) = (self.thread.take(), woken.is_ok()) {
            // The panic hook has reported a panic of the server.
            drop(thread.join());
        }
    }
}

/// Client of a [`DirectoryServer`].
#[derive(Debug, Clone, Copy)]
pub struct TcpDirectory {
    server: SocketAddr,
}

impl Directory for TcpDirectory {
    fn chunk(&mut self, index: usize) -> Result<Chunk, Error> {
        let ask = || {
            let mut stream = TcpStream::connect(self.server)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(WORD_MAX))?;
            stream.write_all(&(index as u64).to_le_bytes())?;
            let mut chunk = Chunk::new_zeroed();
            stream.read_exact(chunk.as_mut_bytes())?;
            Ok(chunk)
        };
        ask().map_err(Error::system(format!("asking the directory server at {} for chunk {index}", self.server)))
    }
}
