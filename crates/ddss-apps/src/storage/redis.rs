//! Page store in Redis, one key for each page, with the required part of its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::store::{Change, PageStore};
use crate::Error;
use crate::page::{PAGE_BYTES, Page, PageId};

/// Timeout of a reply.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Maximum number of commands in flight.
const WINDOW: usize = 64;

/// A connection to a Redis server.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<TcpStream>,
    command: Vec<u8>,
}

impl RedisClient {
    /// Connects.
    pub fn connect(server: SocketAddr) -> Result<RedisClient, Error> {
        let open = || {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            Ok(stream)
        };
        let stream = open().map_err(Error::system(format!("connecting to redis at {server}")))?;
        Ok(RedisClient { stream: BufReader::with_capacity(64 << 10, stream), command: Vec::new() })
    }

    /// Queues a command; [`send`](Self::send) sends all queued commands.
    fn note(&mut self, words: &[&[u8]]) {
        let bulk = |command: &mut Vec<u8>, mark: u8, number: usize| {
            command.push(mark);
            command.extend_from_slice(number.to_string().as_bytes());
            command.extend_from_slice(b"\r\n");
        };
        bulk(&mut self.command, b'*', words.len());
        for word in words {
            bulk(&mut self.command, b'$', word.len());
            self.command.extend_from_slice(word);
            self.command.extend_from_slice(b"\r\n");
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        let sent = self.stream.get_mut().write_all(&self.command).map_err(Error::system("asking redis"));
        self.command.clear();
        sent
    }

    /// Returns the next line of an answer, without its end.
    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(Error::system("reading what redis answered"))?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(Error::Protocol { server: "redis", answer: format!("{line:?}, which has no end") }),
        }
    }

    fn expect_ok(&mut self) -> Result<(), Error> {
        match self.line()? {
            line if line == "+OK" => Ok(()),
            answer => Err(Error::Protocol { server: "redis", answer }),
        }
    }

    /// Reads a bulk string into `into`; returns whether there was one. A bulk string of another length is an error.
    fn expect_bulk(&mut self, into: &mut [u8]) -> Result<bool, Error> {
        let line = self.line()?;
        if line == "$-1" {
            return Ok(false);
        }
        if line.strip_prefix('$').and_then(|bytes| bytes.parse().ok()) != Some(into.len()) {
            return Err(Error::Protocol { server: "redis", answer: line });
        }
        let mut end = [0; 2];
        let read = self.stream.read_exact(into).and_then(|()| self.stream.read_exact(&mut end));
        read.map_err(Error::system("reading what redis answered"))?;
        Ok(true)
    }

    /// Reads the value of a key, which has as many bytes as `into`; returns whether it exists.
    pub fn get(&mut self, key: &[u8], into: &mut [u8]) -> Result<bool, Error> {
        self.note(&[b"GET", key]);
        self.send()?;
        self.expect_bulk(into)
    }

    /// Reads the values of keys by commands that are sent together, one after the other into `into`; returns how many
    /// exist.
    pub fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K], into: &mut [u8]) -> Result<usize, Error> {
        keys.iter().for_each(|key| self.note(&[b"GET", key.as_ref()]));
        self.send()?;
        let mut found = 0;
        for _ in keys {
            found += usize::from(self.expect_bulk(into)?);
        }
        Ok(found)
    }

    /// Writes the value of a key.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.note(&[b"SET", key, value]);
        self.send()?;
        self.expect_ok()
    }
}

/// Pages in Redis, one key each.
#[derive(Debug)]
pub struct RedisPages {
    client: RedisClient,
    name: String,
    pages: u32,
}

impl RedisPages {
    /// Creates a store of pages whose keys begin with `name`. A page that was never written is zero.
    pub fn new(client: RedisClient, name: &str, pages: u32) -> RedisPages {
        RedisPages { client, name: name.to_owned(), pages }
    }

    fn key(&self, page: PageId) -> Vec<u8> {
        format!("{}:{}", self.name, page.0).into_bytes()
    }
}

impl PageStore for RedisPages {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        let key = self.key(page);
        if !self.client.get(&key, into)? {
            into.fill(0);
        }
        Ok(())
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        let key = self.key(page);
        self.client.set(&key, bytes)
    }

    fn read_pages_while(
        &mut self,
        pages: &[PageId],
        into: &mut [Page],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut meanwhile = Some(meanwhile);
        for (pages, into) in pages.chunks(WINDOW).zip(into.chunks_mut(WINDOW)) {
            for &page in pages {
                let key = self.key(page);
                self.client.note(&[b"GET", &key]);
            }
            let sent = self.client.send();
            if let Some(run) = meanwhile.take() {
                run();
            }
            sent?;
            for into in into {
                if !self.client.expect_bulk(into)? {
                    into.fill(0);
                }
            }
        }
        if let Some(run) = meanwhile {
            run();
        }
        Ok(())
    }

    fn commit(&mut self, fresh: &[Change], last: (PageId, &Page)) -> Result<(), Error> {
        // Redis executes the commands of one connection in order.
        for some in fresh.chunks(WINDOW) {
            for (page, bytes) in some {
                let key = self.key(*page);
                self.client.note(&[b"SET", &key, &bytes[..PAGE_BYTES]]);
            }
            self.client.send()?;
            some.iter().try_for_each(|_| self.client.expect_ok())?;
        }
        self.write_page(last.0, last.1)
    }
}
