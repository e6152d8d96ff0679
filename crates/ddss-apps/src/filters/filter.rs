//! A filter, and the loop that drives it.

use std::io::{Read, Write};

use super::frame::{Frame, FrameReader, FrameWriter};
use crate::Error;

/// One step of a program.
pub trait Filter {
    /// Begins a query. `emit` sends a unit to the next filter.
    fn begin(&mut self, query: &[u8], emit: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>;

    /// Processes a unit of the query.
    fn unit(&mut self, unit: &[u8], emit: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>;

    /// Ends the query: no unit follows.
    fn end(&mut self, emit: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let _ = emit;
        Ok(())
    }
}

/// Drives a filter until its input closes. Returns the number of units and of bytes that it sent.
pub fn run_filter(filter: &mut dyn Filter, from: impl Read, to: impl Write) -> Result<(u64, u64), Error> {
    let (mut from, mut to) = (FrameReader::new(from), FrameWriter::new(to));
    let mut has_query = false;
    loop {
        if from.may_wait() {
            // The next filter may have no other work than the units that wait here.
            to.flush().map_err(Error::system("writing to the next filter"))?;
        }
        let frame = from.read().map_err(Error::system("reading from the filter before"))?;
        match frame {
            Frame::Begin(query) if !has_query => {
                has_query = true;
                send(&mut to, frame)?;
                filter.begin(query, &mut |unit| send(&mut to, Frame::Unit(unit)))?;
            }
            Frame::Unit(unit) if has_query => filter.unit(unit, &mut |unit| send(&mut to, Frame::Unit(unit)))?,
            Frame::End if has_query => {
                has_query = false;
                filter.end(&mut |unit| send(&mut to, Frame::Unit(unit)))?;
                send(&mut to, Frame::End)?;
            }
            Frame::Close if !has_query => {
                send(&mut to, Frame::Close)?;
                to.flush().map_err(Error::system("writing to the next filter"))?;
                return Ok(to.written());
            }
            _ => return Err(super::query::refused("a frame out of its order".into())),
        }
    }
}

fn send(to: &mut FrameWriter<impl Write>, frame: Frame<'_>) -> Result<(), Error> {
    to.write(frame).map_err(Error::system("writing to the next filter"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
mod tests {
    use super::*;

    struct Twice(u64);

    impl Filter for Twice {
        fn begin(&mut self, _: &[u8], _: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
            self.0 += 1;
            Ok(())
        }

        fn unit(&mut self, unit: &[u8], emit: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
            emit(unit)?;
            emit(unit)
        }
    }

    fn frames(all: &[Frame<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes);
        all.iter().for_each(|&frame| writer.write(frame).unwrap());
        bytes
    }

    // If this failed, an answer would contain units of another query.
    #[test]
    fn filter_sees_each_query_from_its_begin_to_its_end() {
        let input =
            frames(&[Frame::Begin(b"a"), Frame::Unit(b"1"), Frame::End, Frame::Begin(b"b"), Frame::End, Frame::Close]);
        let (mut filter, mut output) = (Twice(0), Vec::new());
        let (units, bytes) = run_filter(&mut filter, &input[..], &mut output).unwrap();
        assert_eq!((filter.0, units, bytes as usize), (2, 2, output.len()));
        let expected = [
            Frame::Begin(b"a"),
            Frame::Unit(b"1"),
            Frame::Unit(b"1"),
            Frame::End,
            Frame::Begin(b"b"),
            Frame::End,
            Frame::Close,
        ];
        assert_eq!(output, frames(&expected));
    }

    // If this failed, a filter whose neighbour died would report a complete answer.
    #[test]
    fn frames_out_of_order_and_a_cut_input_are_errors() {
        let inputs = [
            frames(&[Frame::Unit(b"1")]),
            frames(&[Frame::Begin(b"a"), Frame::Begin(b"b")]),
            frames(&[Frame::Begin(b"a"), Frame::Close]),
            frames(&[Frame::Begin(b"a"), Frame::Unit(b"1")]),
            Vec::new(),
        ];
        for input in inputs {
            let mut output = Vec::new();
            assert!(run_filter(&mut Twice(0), &input[..], &mut output).is_err());
            assert!(!output.ends_with(&frames(&[Frame::Close])));
        }
    }
}
