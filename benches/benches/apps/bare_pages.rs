//! Pages over bare sockets: the minimal cost of a page store on another node.
//!
//! A request is a page number, a reply its bytes: no names, permissions, checksums or versions. Both sides poll their
//! sockets, each on a core of its own.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, RwLock};

use ddss_apps::Error;
use ddss_apps::storage::{PAGE_BYTES, Page, PageId, PageStore};
use ddss_benches::harness::{Cores, Service, Turn};

/// Bytes of a request: the number of a page.
const QUESTION_BYTES: usize = 4;
/// Maximum number of requests in flight.
const WINDOW: usize = 64;
/// Polls of the service in one turn.
const LOOKS_PER_TURN: u32 = 64;

/// All pages, by their number.
type Kept = Arc<RwLock<Vec<Page>>>;

/// A service that answers one client.
pub(crate) struct BareServer {
    service: Service,
    client: Rc<RefCell<TcpStream>>,
    kept: Kept,
}

impl BareServer {
    /// Starts the service, asleep, with its end of the connection in the namespace that `enter` selects.
    pub(crate) fn start(
        cores: Cores,
        address: IpAddr,
        pages: u32,
        enter: impl FnOnce() + Send + 'static,
    ) -> io::Result<BareServer> {
        let listening = std::thread::spawn(move || {
            enter();
            TcpListener::bind((address, 0))
        });
        let listener = listening.join().expect("it only listens")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let server = listener.accept()?.0;
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
        }
        let kept: Kept = Arc::new(RwLock::new(vec![[0; PAGE_BYTES]; pages as usize]));
        let mut answerer =
            Answerer { socket: server, input: [0; QUESTION_BYTES * WINDOW], have: 0, kept: kept.clone() };
        let service = Service::start(cores, move || answerer.turn());
        Ok(BareServer { service, client: Rc::new(RefCell::new(client)), kept })
    }

    /// The pages from `first` on.
    pub(crate) fn pages(&self, first: u32, pages: u32) -> BarePages {
        BarePages { client: Rc::clone(&self.client), kept: Arc::clone(&self.kept), first, pages }
    }

    /// Wakes the service.
    pub(crate) fn wake(&self) {
        self.service.wake();
    }

    /// Puts the service to sleep.
    pub(crate) fn rest(&self) {
        self.service.rest();
    }
}

/// The side of the service.
struct Answerer {
    socket: TcpStream,
    input: [u8; QUESTION_BYTES * WINDOW],
    have: usize,
    kept: Kept,
}

impl Answerer {
    fn turn(&mut self) -> Turn {
        for _ in 0..LOOKS_PER_TURN {
            match self.socket.read(&mut self.input[self.have..]) {
                Ok(0) => return Turn::Over,
                Ok(count) => {
                    self.have += count;
                    if self.answer().is_err() {
                        return Turn::Over;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(_) => return Turn::Over,
            }
        }
        Turn::Again
    }

    /// Answers all complete requests.
    fn answer(&mut self) -> io::Result<()> {
        let kept = self.kept.read().expect("writers do not panic");
        let (questions, rest) = self.input[..self.have].as_chunks::<QUESTION_BYTES>();
        let pages: Vec<&Page> = questions.iter().map(|&id| &kept[u32::from_le_bytes(id) as usize]).collect();
        let mut slices: Vec<IoSlice<'_>> = pages.iter().map(|page| IoSlice::new(&page[..])).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match self.socket.write_vectored(left) {
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        let (at, bytes) = (questions.as_flattened().len(), rest.len());
        self.input.copy_within(at..self.have, 0);
        self.have = bytes;
        Ok(())
    }
}

/// Some of the pages. They are read over the socket and written into the memory of the service: only reading is measured.
pub(crate) struct BarePages {
    client: Rc<RefCell<TcpStream>>,
    kept: Kept,
    first: u32,
    pages: u32,
}

impl PageStore for BarePages {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        self.read_pages(&[page], std::slice::from_mut(into))
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        self.kept.write().expect("readers do not panic")[(self.first + page.0) as usize] = *bytes;
        Ok(())
    }

    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        assert!(pages.len() <= WINDOW, "a batch of a tree is smaller");
        let mut questions = [[0; QUESTION_BYTES]; WINDOW];
        for (question, page) in questions.iter_mut().zip(pages) {
            *question = (self.first + page.0).to_le_bytes();
        }
        let mut socket = self.client.borrow_mut();
        let failed = Error::system("asking over a bare socket");
        // The socket always has room for so few bytes, because all earlier answers have arrived.
        let sent = socket.write_all(questions[..pages.len()].as_flattened());
        meanwhile();
        sent.and_then(|()| read_exact(&mut socket, into[..pages.len()].as_flattened_mut())).map_err(failed)
    }
}

fn read_exact(socket: &mut TcpStream, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match socket.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
