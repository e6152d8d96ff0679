//! Plain sockets with a sliding window: each reply is followed by the next request.

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};

use super::tcp::{Answerer, Over, QUESTION_BYTES, Wait, connected, write_all};
use crate::harness::{Cores, Figure, RoundTrip, Service, Spinner};

struct Window {
    client: TcpStream,
    questions: Vec<u8>,
    answers: Vec<u8>,
    size_bytes: usize,
    outstanding: usize,
    asked: usize,
    came_bytes: usize,
    /// Bytes expected at the end of this lap: a lap's surplus counts for the next one.
    goal_bytes: usize,
    service: Service,
    yields: bool,
}

/// Requests of 8 bytes and replies of `size_bytes` over loopback, `outstanding` in flight at any time.
pub fn tcp_window(cores: Cores, size_bytes: usize, outstanding: usize) -> Figure {
    let (client, server) = connected(Over::Loopback, Wait::Spin).expect("both ends are there");
    let yields = cores.is_shared();
    let mut answerer = Answerer::new(server, size_bytes, outstanding, yields);
    let service = Service::start(cores, move || answerer.turn());
    let questions = vec![1; QUESTION_BYTES * outstanding];
    let answers = vec![0; size_bytes * outstanding];
    let (asked, came_bytes, goal_bytes) = (0, 0, 0);
    let trip =
        Window { client, questions, answers, size_bytes, outstanding, asked, came_bytes, goal_bytes, service, yields };
    Figure::new("raw", "window", size_bytes, "tcp-lo/spin/t1", trip).outstanding(outstanding)
}

impl Window {
    fn under_way(&self) -> usize {
        self.asked - self.came_bytes / self.size_bytes
    }

    /// Sends requests until `outstanding` of them are in flight.
    fn ask(&mut self) {
        let more = self.outstanding - self.under_way();
        write_all(&self.client, &self.questions[..QUESTION_BYTES * more], self.yields).expect("the service is there");
        self.asked += more;
    }

    /// Waits for bytes of answers, which lie side by side.
    fn take(&mut self) {
        let mut spinner = Spinner::new(self.yields);
        let at = self.came_bytes % self.answers.len();
        loop {
            match (&self.client).read(&mut self.answers[at..]) {
                Ok(0) => panic!("the service closed the connection"),
                Ok(count) => {
                    self.came_bytes += count;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => spinner.again(),
                Err(error) => panic!("reading an answer: {error}"),
            }
        }
    }
}

impl RoundTrip for Window {
    fn once(&mut self) {
        self.goal_bytes += self.answers.len();
        while self.came_bytes < self.goal_bytes {
            self.ask();
            self.take();
        }
    }

    fn operations(&self) -> u64 {
        self.outstanding as u64
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        while self.under_way() > 0 {
            self.take();
        }
        // The bytes that arrived here belong to no lap.
        self.goal_bytes = self.came_bytes;
        self.service.rest();
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Ends the service. An error means that the socket is already closed.
        drop(self.client.shutdown(Shutdown::Both));
    }
}
