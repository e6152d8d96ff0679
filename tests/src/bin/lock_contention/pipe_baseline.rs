//! A baseline without DDSS: sixteen threads that pass a lock to each other by pipes.

use crate::{Broken, CLIENTS, Line, Turn, Work};
use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Instant;

/// One thread of the baseline.
pub(crate) struct Piped {
    ask: PipeWriter,
    told: PipeReader,
    name: u8,
}

impl Piped {
    /// Sends a word and waits for the answer.
    fn ask(&mut self, word: u8) -> std::io::Result<()> {
        self.ask.write_all(&[word])?;
        self.told.read_exact(&mut [0])
    }
}

/// Word for a release without a new request.
const GIVES: u8 = 0x80;
/// Word without effect on the lock, as a get or a put.
const WORKS: u8 = 0x40;

impl Line for Piped {
    fn turn(&mut self, work: Work) -> Result<Turn, Broken> {
        let asked = Instant::now();
        self.ask(self.name)?;
        let had = Instant::now();
        match work {
            Work::Sleep(time) if time.is_zero() => {}
            Work::Sleep(time) => std::thread::sleep(time),
            Work::Count => {
                self.ask(self.name | WORKS)?;
                self.ask(self.name | WORKS)?;
            }
        }
        let gave = Instant::now();
        self.ask(self.name | GIVES)?;
        Ok(Turn { asked, had, gave })
    }
}

/// Grants the lock and answers releases until all pipes are closed.
fn arbitrate(mut asked: PipeReader, mut tell: Vec<PipeWriter>) {
    let (mut line, mut word) = (VecDeque::new(), [0]);
    while asked.read_exact(&mut word).is_ok() {
        let mut answer = |name: u8| tell[usize::from(name)].write_all(&[name]);
        let [word] = word;
        let name = word & !(GIVES | WORKS);
        // The holder is the first of the queue.
        let next = if word & GIVES != 0 {
            line.pop_front();
            line.front().copied()
        } else if word & WORKS == 0 {
            line.push_back(name);
            (line.len() == 1).then_some(name)
        } else {
            None
        };
        let answered = (word != name).then_some(name);
        if next.into_iter().chain(answered).any(|name| answer(name).is_err()) {
            return;
        }
    }
}

/// Forwards words, as another node's daemon would.
fn pass_on(mut from: PipeReader, mut to: impl FnMut(u8) -> std::io::Result<()>) {
    let mut word = [0];
    while from.read_exact(&mut word).is_ok() && to(word[0]).is_ok() {}
}

/// Sixteen threads with pipes: half of them ask the arbiter directly, the others through a forwarder.
pub(crate) fn piped(scope: &mut Vec<std::thread::JoinHandle<()>>) -> Result<Vec<Piped>, Broken> {
    let (asked, ask) = pipe()?;
    let (asked_far, ask_far) = pipe()?;
    let (answered_far, answer_far) = pipe()?;
    let (mut tell, mut tell_far, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    for name in 0..CLIENTS as u8 {
        let (told, teller) = pipe()?;
        let far = name % 2 == 1;
        tell.push(if far { answer_far.try_clone()? } else { teller.try_clone()? });
        tell_far.push(teller);
        let ask = if far { ask_far.try_clone()? } else { ask.try_clone()? };
        clients.push(Piped { ask, told, name });
    }
    // Each thread ends when the last writer of its pipe has closed it.
    let mut ask = ask;
    scope.push(std::thread::spawn(move || arbitrate(asked, tell)));
    scope.push(std::thread::spawn(move || pass_on(asked_far, |word| ask.write_all(&[word]))));
    scope.push(std::thread::spawn(move || {
        pass_on(answered_far, |name| tell_far[usize::from(name)].write_all(&[name]));
    }));
    Ok(clients)
}
