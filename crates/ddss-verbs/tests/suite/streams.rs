//! The Sockets Direct Protocol over a fabric: messages in private buffers, and a read in place.

use ddss_sdp::codec::Advertisement;
use ddss_sdp::{Addresses, BasicStream, Plan, StreamConfig, ZeroCopyOutcome, accept, connect, finish_connect};
use ddss_verbs::{Fabric, PeerId, PostErrorKind, RemoteRange, Rights, Work};

use super::{local, send};
use crate::common::{FabricFactory, Memory, Node, OwnedEvent, Pair, pattern};

/// Tag of the read; messages have lower ones.
const READ: u64 = 1 << 50;
/// Tag of a hello that is a message.
const HELLO: u64 = 1 << 40;
const IN_PLACE: u32 = 1 << 20;

/// One end of a stream.
struct End {
    stream: BasicStream,
    peer: PeerId,
    tag: u64,
    /// Message that the fabric did not take yet.
    waiting: Option<Vec<u8>>,
}

impl End {
    fn new(stream: BasicStream, peer: PeerId) -> Self {
        Self { stream, peer, tag: 0, waiting: None }
    }

    /// Receives and sends what is possible.
    fn step<F: Fabric>(&mut self, node: &mut Node<F>) {
        while let Some(message) = node.message() {
            self.stream.receive_buffer().unwrap()[..message.len()].copy_from_slice(&message);
            self.stream.received(message.len()).unwrap();
        }
        while node.take(|seen| matches!(seen, OwnedEvent::Done { tag, .. } if *tag < READ)).is_some() {}
        loop {
            if self.waiting.is_none() {
                self.waiting = self.stream.next_message(0).map(|message| [message.head(), message.payload].concat());
            }
            let Some(message) = &self.waiting else { return };
            match node.fabric.post(&[send(self.peer, self.tag, message)]) {
                Ok(()) => (self.tag, self.waiting) = (self.tag + 1, None),
                Err(error) => {
                    assert_eq!(error.kind, PostErrorKind::Busy);
                    return;
                }
            }
        }
    }
}

/// Connects both ends. The hello and its answer are the private data of the connection, or the first messages where that is too short,
/// as it is on RoCE.
fn open<L: FabricFactory>(pair: &mut Pair<L>) -> [End; 2] {
    let capabilities = pair.a.fabric.capabilities();
    let bytes = capabilities.message_bytes_max as u32;
    let config = StreamConfig {
        buffers: 16,
        buffer_bytes: bytes,
        buffer_bytes_max: bytes,
        no_delay: true,
        ..StreamConfig::default()
    };
    let plan = Plan { zero_copy: true, ..Plan::basic() };
    let addresses = Addresses { source: pair.address.ip(), destination: pair.address.ip(), port: 1 };
    let hello = connect(&config, plan, addresses).unwrap();
    let fits = hello.len() <= capabilities.hello_bytes_max;
    let there = pair.a.fabric.connect(pair.address, if fits { &hello } else { b"" }).unwrap();
    let asked = pair.wait("being asked", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. })));
    let OwnedEvent::ConnectRequest { peer: here, hello: private } = asked else { unreachable!() };
    let (terms_of_b, ack) = accept(&config, plan, if fits { &private } else { &hello }).unwrap();
    pair.b.fabric.accept(here, if fits { &ack } else { b"" }).unwrap();
    let answer = pair.wait("a's answer", |pair| pair.a.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    let OwnedEvent::Connected { hello: mut answer, .. } = answer else { unreachable!() };
    pair.wait("b to be connected", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    if !fits {
        pair.a.fabric.post(&[send(there, HELLO, &hello)]).unwrap();
        assert_eq!(pair.wait("the hello", |pair| pair.b.message()), hello);
        pair.b.fabric.post(&[send(here, HELLO, &ack)]).unwrap();
        answer = pair.wait("its answer", |pair| pair.a.message());
    }
    let terms_of_a = finish_connect(plan, &answer).unwrap();
    let streams = [terms_of_a, terms_of_b].map(|terms| BasicStream::new(&config, &terms).unwrap());
    let [a, b] = streams;
    [End::new(a, there), End::new(b, here)]
}

pub(crate) fn stream_moves_bytes_through_buffers_and_in_place(factory: impl FabricFactory) {
    // If this failed, the plan that follows from an adapter's parts would not work on it.
    let mut pair = Pair::new(factory);
    let [mut a, mut b] = open(&mut pair);
    let (buffered, in_place) = (pattern(1, 60_000), pattern(2, IN_PLACE as usize));
    let (mut written, mut got) = (0, Vec::new());
    pair.wait("the bytes in messages", |pair| {
        written += a.stream.write(&buffered[written..]).unwrap();
        a.step(&mut pair.a);
        b.step(&mut pair.b);
        let mut room = [0; 1000];
        let read = b.stream.read(&mut room).unwrap().unwrap_or(0);
        got.extend_from_slice(&room[..read]);
        (got.len() == buffered.len()).then_some(())
    });
    assert!(got == buffered);

    let (source, sink) = (Memory::new(IN_PLACE.into()), Memory::new(IN_PLACE.into()));
    source.set(0, &in_place);
    let (region, sink_region) = (pair.a.register(&source), pair.b.register(&sink));
    let window = pair.a.fabric.expose(a.peer, region, 0, IN_PLACE.into(), Rights::READ).unwrap();
    a.stream.advertise(Advertisement { len: IN_PLACE, rkey: window.key, vaddr: window.base }, &[]).unwrap();
    let offered = pair.wait("the advertisement", |pair| {
        a.step(&mut pair.a);
        b.step(&mut pair.b);
        b.stream.source()
    });
    let read = b.stream.begin_source_read(offered.len).unwrap();
    let remote = RemoteRange { key: read.rkey, address: read.vaddr };
    let work = Work::Read { peer: b.peer, tag: READ, local: local(sink_region, 0, IN_PLACE.into()), remote };
    pair.b.fabric.post(&[work]).unwrap();
    assert_eq!(pair.b_done(READ), Ok(0));
    b.stream.end_source_read(IN_PLACE).unwrap();
    let outcome = pair.wait("the outcome", |pair| {
        b.step(&mut pair.b);
        a.step(&mut pair.a);
        a.stream.take_outcome()
    });
    assert_eq!(outcome, ZeroCopyOutcome { sent: IN_PLACE, rest: 0 });
    pair.a.fabric.withdraw(a.peer, window.key);
    assert!(sink.get(0, in_place.len()) == in_place);

    a.stream.shutdown();
    pair.wait("the end of the stream", |pair| {
        a.step(&mut pair.a);
        b.step(&mut pair.b);
        (b.stream.read(&mut [0; 8]).unwrap() == Some(0)).then_some(())
    });
    let (sent, received) = (a.stream.ledger(), b.stream.ledger());
    let all = (buffered.len() + in_place.len()) as u64;
    assert_eq!((sent.written, sent.send_copied), (all, buffered.len() as u64));
    assert_eq!((received.read, received.receive_copied), (all, buffered.len() as u64));
}
