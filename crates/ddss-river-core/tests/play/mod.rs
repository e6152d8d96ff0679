//! Plays bytes to both ends of a queue: calls of the application, connections, and messages of a hostile peer.

use ddss_river_core::codec::{Message, decode};
use ddss_river_core::{
    ChunkReply, ChunkRequest, ChunkServer, Consumer, ConsumerEvent, ConsumerId, EdgeId, Guarantee, Mirror, Moment,
    PartId, PartReader, Producer, ProducerAction, ProducerEvent, ProducerId, QueueConfig, ReadOrder, ReaderAction,
    ReaderConfig, ReaderEvent, ReaderId, Take, Taken,
};

const WINDOW: u16 = 2;
const SEND_SLOTS: u16 = 3;
const CHUNKS: u32 = 12;

/// Both ends, each with the hostile peers 0 and 1.
struct Ends {
    producer: Producer,
    consumer: Consumer,
    /// Connections of the producer, and of the consumer.
    connected: [[bool; 2]; 2],
    dead: [[bool; 2]; 2],
    taken: Vec<Taken>,
    is_closed: bool,
    server: ChunkServer,
    reader: PartReader,
    delivered: u32,
}

impl Ends {
    fn new(flags: u8) -> Self {
        let guarantee = [Guarantee::AtLeastOnce, Guarantee::AtMostOnce, Guarantee::FailStop][usize::from(flags % 3)];
        let (has_recall, message_bytes_max) = (flags & 16 == 0, 64);
        let config = QueueConfig { window: WINDOW, send_slots: SEND_SLOTS, message_bytes_max, guarantee, has_recall };
        let order = if flags & 32 == 0 { ReadOrder::Any } else { ReadOrder::Rising };
        let (part, chunks) = (PartId(0), CHUNKS);
        let reader = ReaderConfig { reader: ReaderId(1), part, generation: 1, chunks, window: WINDOW, order };
        Self {
            producer: Producer::new(EdgeId(0), ProducerId(9), config).expect("valid settings"),
            consumer: Consumer::new(EdgeId(0), ConsumerId(9), config).expect("valid settings"),
            connected: [[false; 2]; 2],
            dead: [[false; 2]; 2],
            taken: Vec::new(),
            is_closed: false,
            server: ChunkServer::default(),
            reader: PartReader::new(reader).expect("valid settings"),
            delivered: 0,
        }
    }

    /// Does what the application or the driver of the producer does.
    fn drive_producer(&mut self, kind: u8, peer: usize, moment: Moment) {
        let mut out = Vec::new();
        let id = ConsumerId(peer as u16);
        match kind % 5 {
            0 if !self.is_closed => {
                if let Some(place) = self.producer.reserve() {
                    self.producer.put(place, 64, 0, None, moment, &mut out);
                }
            }
            1 if !self.connected[0][peer] && !self.dead[0][peer] => {
                self.connected[0][peer] = true;
                self.producer.handle(ProducerEvent::Connected(id), moment, &mut out);
            }
            2 => {
                self.connected[0][peer] = false;
                self.producer.handle(ProducerEvent::Lost(id), moment, &mut out);
            }
            3 => {
                self.connected[0][peer] = false;
                self.dead[0][peer] = true;
                self.producer.handle(ProducerEvent::Dead(id), moment, &mut out);
            }
            4 if moment.random & 7 == 0 => {
                self.is_closed = true;
                self.producer.close(moment, &mut out);
            }
            _ => {}
        }
        self.check(&out);
    }

    /// Does what the application or the driver of the consumer does.
    fn drive_consumer(&mut self, kind: u8, peer: usize, now_us: u64) {
        let mut out = Vec::new();
        let id = ProducerId(peer as u16);
        match kind % 7 {
            0 => {
                if let Take::Message(taken) = self.consumer.take(now_us, &mut out) {
                    self.taken.push(taken);
                }
            }
            1 => {
                if let Some(taken) = self.taken.pop() {
                    self.consumer.acknowledge(taken, now_us, &mut out);
                }
            }
            2 => {
                if let Some(taken) = self.taken.pop() {
                    self.consumer.reject(taken, &mut out);
                }
            }
            3 => self.consumer.withdraw(&mut out),
            4 if !self.connected[1][peer] && !self.dead[1][peer] => {
                self.connected[1][peer] = true;
                self.consumer.handle(ConsumerEvent::Connected(id), &mut out).expect("no message");
            }
            5 => {
                self.connected[1][peer] = false;
                self.consumer.handle(ConsumerEvent::Lost(id), &mut out).expect("no message");
            }
            _ => {
                self.connected[1][peer] = false;
                self.dead[1][peer] = true;
                self.consumer.handle(ConsumerEvent::Dead(id), &mut out).expect("no message");
            }
        }
        assert!(self.consumer.held() <= 2 * u32::from(WINDOW));
    }

    fn receive(&mut self, bytes: &[u8], peer: usize, moment: Moment) {
        let (mut actions, mut replies) = (Vec::new(), Vec::new());
        let (from, producer) = (ConsumerId(peer as u16), ProducerId(peer as u16));
        let event = match decode(bytes) {
            Ok((Message::ToProducer(_, notice), _)) => {
                self.producer.handle(ProducerEvent::Notice { from, notice }, moment, &mut actions);
                return self.check(&actions);
            }
            Ok((Message::Put { header, .. }, _)) => ConsumerEvent::Message { from: producer, header },
            Ok((Message::ToConsumer(_, notice), _)) => ConsumerEvent::Notice { from: producer, notice },
            Ok((Message::ChunkRequest(request), _)) => return self.serve(request),
            Ok((Message::ChunkReply(reply), _)) => return self.read(reply, peer),
            Err(_) => return,
        };
        if self.consumer.handle(event, &mut replies).is_err() {
            self.connected[1][peer] = false;
            self.consumer.handle(ConsumerEvent::Lost(producer), &mut replies).expect("no message");
        }
        assert!(self.consumer.held() <= 2 * u32::from(WINDOW));
    }

    fn serve(&mut self, request: ChunkRequest) {
        self.server.connect(ReaderId(1));
        let _ = self.server.add(request);
        if request.chunk & 1 == 0 {
            self.server.take();
        }
    }

    fn read(&mut self, reply: ChunkReply, peer: usize) {
        let mut out = Vec::new();
        let (from, is_intact) = (Mirror::BOTH[peer], reply.checksum & 1 == 0);
        let event = match reply.checksum % 8 {
            0..5 => ReaderEvent::Reply { from, reply, is_intact },
            5 => ReaderEvent::Connected(from),
            6 => ReaderEvent::Lost(from),
            _ => ReaderEvent::Dead(from),
        };
        self.reader.handle(event, &mut out);
        for action in out {
            if let ReaderAction::Deliver { chunk, slot } = action {
                self.delivered += 1;
                assert!(chunk < CHUNKS && self.delivered <= CHUNKS);
                self.reader.release(slot, &mut Vec::new());
            }
        }
    }

    fn check(&self, actions: &[ProducerAction]) {
        assert!(self.producer.held() <= usize::from(SEND_SLOTS));
        for action in actions {
            if let ProducerAction::Write { to, header } = action {
                assert!(header.slot < WINDOW && self.connected[0][usize::from(to.0)], "{action:?}");
            }
        }
    }
}

/// Plays an input: the settings, then steps of a byte for the kind, a byte for the argument, and bytes of a message.
///
/// # Panics
/// If an end does what it must not.
pub(crate) fn play(data: &[u8]) {
    let Some((flags, mut data)) = data.split_first() else { return };
    let mut ends = Ends::new(*flags);
    let mut now_us = 0;
    while let [kind, argument, rest @ ..] = data {
        data = rest;
        now_us += u64::from(*argument);
        let (moment, peer) = (Moment { now_us, random: u64::from(*argument) }, usize::from(argument & 1));
        match kind % 3 {
            0 => ends.drive_producer(kind >> 2, peer, moment),
            1 => ends.drive_consumer(kind >> 2, peer, now_us),
            _ => {
                let (bytes, rest) = data.split_at(data.len().min(usize::from(*argument)));
                data = rest;
                ends.receive(bytes, peer, moment);
            }
        }
    }
}
