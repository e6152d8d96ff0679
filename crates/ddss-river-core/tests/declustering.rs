//! Reader and file server of mirrored parts, joined by hand.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_river_core::limits::CHUNK_WINDOW_MAX;
use ddss_river_core::{
    ChunkReply, ChunkRequest, ChunkServer, Mirror, PartId, PartReader, Progress, ReadOrder, ReaderAction, ReaderConfig,
    ReaderEvent, ReaderId, RequestError,
};

fn config(chunks: u32, order: ReadOrder) -> ReaderConfig {
    ReaderConfig { reader: ReaderId(1), part: PartId(4), generation: 7, chunks, window: 2, order }
}

/// A reader with both mirrors connected, and what it has done.
struct Reading {
    reader: PartReader,
    asked: Vec<(Mirror, ChunkRequest)>,
    delivered: Vec<u32>,
    end: Option<ReaderAction>,
}

impl Reading {
    fn new(config: ReaderConfig) -> Self {
        let reader = PartReader::new(config).unwrap();
        let mut reading = Self { reader, asked: Vec::new(), delivered: Vec::new(), end: None };
        reading.event(ReaderEvent::Connected(Mirror::First));
        reading.event(ReaderEvent::Connected(Mirror::Second));
        reading
    }

    fn event(&mut self, event: ReaderEvent) {
        let mut out = Vec::new();
        self.reader.handle(event, &mut out);
        while !out.is_empty() {
            for action in std::mem::take(&mut out) {
                match action {
                    ReaderAction::Ask { at, request } => self.asked.push((at, request)),
                    ReaderAction::Deliver { chunk, slot } => {
                        self.delivered.push(chunk);
                        self.reader.release(slot, &mut out);
                    }
                    end => self.end = Some(end),
                }
            }
        }
    }

    /// Answers the oldest request at a mirror.
    fn reply(&mut self, mirror: Mirror, generation: u64, is_intact: bool) -> bool {
        let Some(position) = self.asked.iter().position(|(at, _)| *at == mirror) else { return false };
        let ChunkRequest { reader, part, chunk, slot, .. } = self.asked.remove(position).1;
        let reply = ChunkReply { reader, part, generation: Some(generation), chunk, slot, checksum: 0 };
        self.event(ReaderEvent::Reply { from: mirror, reply, is_intact });
        true
    }

    fn forget(&mut self, mirror: Mirror) {
        self.asked.retain(|(at, _)| *at != mirror);
    }
}

// If this failed, a slow mirror would decide when a reader ends.
#[test]
fn both_mirrors_are_read_until_they_meet() {
    let mut reading = Reading::new(config(40, ReadOrder::Any));
    while reading.end.is_none() {
        // The second mirror is three times as slow.
        for _ in 0..3 {
            reading.reply(Mirror::First, 7, true);
        }
        reading.reply(Mirror::Second, 7, true);
        assert!(reading.asked.iter().filter(|(at, _)| *at == Mirror::First).count() <= 2, "a window of two");
    }
    assert_eq!(reading.end, Some(ReaderAction::Ended));
    assert_eq!(&reading.delivered[..4], [0, 1, 2, 32], "from the front, and in strides from the back");
    let mut all = reading.delivered.clone();
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
}

#[test]
fn chunks_of_a_lost_mirror_are_asked_of_the_other() {
    for lost in Mirror::BOTH {
        for order in [ReadOrder::Any, ReadOrder::Rising] {
            let mut reading = Reading::new(config(20, order));
            for _ in 0..3 {
                reading.reply(lost, 7, true);
            }
            reading.event(ReaderEvent::Lost(lost));
            reading.forget(lost);
            while reading.reply(lost.other(), 7, true) {}
            assert_eq!((reading.end, reading.delivered.len()), (Some(ReaderAction::Ended), 20));
        }
    }
}

// If this failed, a mirror whose disk hangs would stop the reader, or one would be passed over that alone has a chunk.
#[test]
fn only_a_chunk_that_the_other_mirror_may_have_is_replaceable() {
    let mut reading = Reading::new(config(20, ReadOrder::Rising));
    let hung = reading.reader.replaceable(Some(0)).expect("both mirrors are connected, and one was asked");
    reading.event(ReaderEvent::Lost(hung));
    reading.forget(hung);
    assert_eq!(reading.reader.replaceable(Some(0)), None, "its mirror is not there");
    while reading.reply(hung.other(), 7, true) {}
    assert_eq!((reading.end, reading.delivered.len()), (Some(ReaderAction::Ended), 20));
    let mut reading = Reading::new(config(1, ReadOrder::Any));
    let first = reading.reader.replaceable(Some(0)).unwrap();
    reading.reply(first, 7, false);
    assert_eq!(reading.reader.replaceable(Some(0)), None, "the other one has a damaged copy");
    assert_eq!(reading.reader.replaceable(None), None, "nothing else was asked");
}

// If this failed, a program would read bytes of a part that was written again.
#[test]
fn stale_and_damaged_chunks_are_asked_of_the_other_mirror() {
    for (generation, is_intact) in [(6, true), (7, false)] {
        let mut reading = Reading::new(config(20, ReadOrder::Any));
        while reading.end.is_none() {
            reading.reply(Mirror::First, generation, is_intact);
            reading.reply(Mirror::Second, 7, true);
        }
        assert_eq!((reading.end, reading.delivered.len()), (Some(ReaderAction::Ended), 20));
    }
}

#[test]
fn a_chunk_that_both_mirrors_lack_is_named() {
    let mut reading = Reading::new(config(1, ReadOrder::Any));
    reading.reply(Mirror::First, 7, false);
    assert_eq!(reading.end, None);
    reading.reply(Mirror::Second, 6, true);
    assert_eq!(reading.end, Some(ReaderAction::Failed { part: PartId(4), chunk: 0 }));
}

#[test]
fn a_part_whose_mirrors_are_dead_fails() {
    let mut reading = Reading::new(config(20, ReadOrder::Any));
    reading.event(ReaderEvent::Dead(Mirror::First));
    assert_eq!(reading.end, None);
    reading.event(ReaderEvent::Dead(Mirror::Second));
    assert!(matches!(reading.end, Some(ReaderAction::Failed { .. })));
}

// If this failed, a reader would wait for ever for a chunk that no node has.
#[test]
fn a_damaged_chunk_whose_other_mirror_dies_fails() {
    let mut reading = Reading::new(config(3, ReadOrder::Any));
    reading.event(ReaderEvent::Lost(Mirror::Second));
    reading.reply(Mirror::First, 7, false);
    reading.event(ReaderEvent::Dead(Mirror::Second));
    assert_eq!(reading.end, Some(ReaderAction::Failed { part: PartId(4), chunk: 0 }));
}

// If this failed, a program that is slow would make its reader overwrite chunks.
#[test]
fn a_reader_asks_only_for_what_has_a_buffer() {
    let mut reader = PartReader::new(config(20, ReadOrder::Rising)).unwrap();
    let (mut out, mut asked) = (Vec::new(), Vec::new());
    Mirror::BOTH.into_iter().for_each(|mirror| reader.handle(ReaderEvent::Connected(mirror), &mut out));
    for action in std::mem::take(&mut out) {
        let ReaderAction::Ask { at, request } = action else { panic!("{action:?}") };
        asked.push((at, request));
    }
    assert_eq!((asked.len(), reader.slots()), (4, 4));
    for (from, ChunkRequest { reader: id, part, chunk, slot, .. }) in asked {
        let reply = ChunkReply { reader: id, part, generation: Some(7), chunk, slot, checksum: 0 };
        reader.handle(ReaderEvent::Reply { from, reply, is_intact: true }, &mut out);
    }
    assert!(out.iter().all(|action| matches!(action, ReaderAction::Deliver { .. })), "{out:?}");
    out.clear();
    reader.release(0, &mut out);
    assert!(matches!(out[..], [ReaderAction::Ask { request: ChunkRequest { chunk: 4, slot: 0, .. }, .. }]));
}

// If this failed, one damaged chunk would stop a program that reads in order, although the other mirror has the chunk.
#[test]
fn a_damaged_chunk_keeps_its_buffer_while_later_ones_wait_for_it() {
    for damaged in 0..24 {
        let config = ReaderConfig { window: 4, ..config(24, ReadOrder::Rising) };
        let (mut reader, mut out) = (PartReader::new(config).unwrap(), Vec::new());
        Mirror::BOTH.into_iter().for_each(|mirror| reader.handle(ReaderEvent::Connected(mirror), &mut out));
        assert_eq!(reader.slots(), 8);
        let (mut ready, mut next) = (std::collections::BTreeMap::new(), 0);
        // The mirror that was asked first has it damaged; the other one answers all others of its window before it.
        let mut bad = None;
        while !out.is_empty() {
            let position = out.iter().position(|action| {
                matches!(action, ReaderAction::Ask { at, request } if request.chunk != damaged || bad.is_none_or(|bad| bad == *at))
            });
            match out.remove(position.unwrap_or(0)) {
                ReaderAction::Ask { at, request: ChunkRequest { reader: id, part, chunk, slot, .. } } => {
                    let is_intact = chunk != damaged || *bad.get_or_insert(at) != at;
                    let reply = ChunkReply { reader: id, part, generation: Some(7), chunk, slot, checksum: 0 };
                    reader.handle(ReaderEvent::Reply { from: at, reply, is_intact }, &mut out);
                }
                ReaderAction::Deliver { chunk, slot } => drop(ready.insert(chunk, slot)),
                ReaderAction::Ended => {}
                failed @ ReaderAction::Failed { .. } => panic!("{failed:?}"),
            }
            while let Some(slot) = ready.remove(&next) {
                next += 1;
                reader.release(slot, &mut out);
            }
        }
        assert_eq!(next, 24, "chunk {damaged} is damaged at one mirror");
    }
}

fn request(reader: u32, chunk: u32, done: u32) -> ChunkRequest {
    let progress = Progress { done, total: 100 };
    ChunkRequest { reader: ReaderId(reader), part: PartId(reader), generation: 7, chunk, slot: 0, progress }
}

// If this failed, readers would depart from one another, and the last one would decide.
#[test]
fn the_reader_that_lags_behind_is_served_first() {
    let mut server = ChunkServer::default();
    [1, 2].into_iter().for_each(|reader| assert!(server.connect(ReaderId(reader))));
    server.add(request(1, 0, 50)).unwrap();
    server.add(request(2, 1, 20)).unwrap();
    server.add(request(2, 2, 49)).unwrap();
    let order: Vec<_> = std::iter::from_fn(|| server.take()).map(|request| request.chunk).collect();
    assert_eq!(order, [1, 2, 0], "a change for one chunk would cost a seek");
    server.add(request(1, 3, 50)).unwrap();
    server.add(request(2, 4, 53)).unwrap();
    assert_eq!(server.take().unwrap().chunk, 3);
}

#[test]
fn requests_outside_their_limits_are_refused() {
    let mut server = ChunkServer::default();
    assert_eq!(server.add(request(1, 0, 0)), Err(RequestError::Unknown(ReaderId(1))));
    server.connect(ReaderId(1));
    assert_eq!(server.add(request(1, 100, 0)), Err(RequestError::Field(ReaderId(1), "chunk", 100)));
    assert_eq!(server.add(request(1, 0, 101)), Err(RequestError::Field(ReaderId(1), "progress", 101)));
    (0..CHUNK_WINDOW_MAX).for_each(|_| server.add(request(1, 0, 0)).unwrap());
    assert_eq!(server.add(request(1, 0, 0)), Err(RequestError::Full(ReaderId(1))));
    server.disconnect(ReaderId(1));
    assert_eq!(server.take(), None);
}
