//! One stream on tokio over each transport.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ddss_stream::wire::WireConfig;
use ddss_stream::{AsyncListener, AsyncStream, Transport, TransportPolicy};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, split};
use tokio::time::timeout;

/// Time limit of a step of these tests on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn any() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn wire() -> WireConfig {
    WireConfig { handshake_max: PATIENCE, ..WireConfig::default() }
}

fn policies() -> [TransportPolicy; 4] {
    let wires = [wire(), wire().basic()].map(TransportPolicy::Wire);
    [TransportPolicy::Tcp, TransportPolicy::Auto, wires[0], wires[1]]
}

async fn pair(policy: TransportPolicy) -> (AsyncStream, AsyncStream) {
    let listener = AsyncListener::bind(any(), policy).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        // On the wire this answers the hello.
        stream.flush().await.unwrap();
        stream
    });
    let connected = AsyncStream::connect(address, &policy).await.unwrap();
    (connected, accepted.await.unwrap())
}

/// Makes a stream in shared memory. On a machine with few free ports a library leaves some connections on TCP for a while.
async fn shared_pair() -> (AsyncStream, AsyncStream) {
    let start = Instant::now();
    loop {
        let (mut here, mut there) = pair(TransportPolicy::Auto).await;
        let mut word = [0; 8];
        for _ in 0..8 {
            here.write_all(&word).await.unwrap();
            there.read_exact(&mut word).await.unwrap();
            there.write_all(&word).await.unwrap();
            here.read_exact(&mut word).await.unwrap();
        }
        if [here.transport(), there.transport()] == [Transport::SameNode; 2] {
            return (here, there);
        }
        assert!(start.elapsed() < PATIENCE, "every stream stays on TCP: {here:?}");
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

// If this failed, hyper and tonic would hang, or lose bytes, where one task reads and another one writes.
#[tokio::test]
async fn tasks_read_and_write_one_stream_at_once() {
    for policy in policies() {
        let (here, there) = pair(policy).await;
        let (ends, bytes) = ([here, there], pattern(3_000_001));
        let mut tasks = Vec::new();
        for stream in ends {
            let ((mut reading, mut writing), sent) = (split(stream), bytes.clone());
            let writer = tokio::spawn(async move {
                for piece in sent.chunks(30_011) {
                    writing.write_all(piece).await.unwrap();
                }
                writing.shutdown().await.unwrap();
                writing
            });
            let reader = tokio::spawn(async move {
                let mut got = Vec::new();
                reading.read_to_end(&mut got).await.unwrap();
                got
            });
            tasks.push((writer, reader));
        }
        for (writer, reader) in tasks {
            drop(timeout(PATIENCE, writer).await.unwrap().unwrap());
            assert!(timeout(PATIENCE, reader).await.unwrap().unwrap() == bytes, "{policy:?}");
        }
    }
}

/// Counts the calls of a waker.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// If this failed, a task that reads would take a whole core from the moment that a writer of its stream has waited.
#[tokio::test]
async fn reader_sleeps_beside_a_writer_whose_time_is_over() {
    let ((mut here, _there), mut word) = (shared_pair().await, [0; 8]);
    // The ring is full, and the writer has a time at which it looks again.
    let bytes = pattern(600 << 10);
    poll_fn(|context| {
        while Pin::new(&mut here).poll_write(context, &bytes).is_ready() {}
        Poll::Ready(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let wakes = Arc::new(Wakes::default());
    let (waker, mut room) = (Waker::from(Arc::clone(&wakes)), ReadBuf::new(&mut word));
    let result = Pin::new(&mut here).poll_read(&mut Context::from_waker(&waker), &mut room);
    assert!(result.is_pending());
    // The runtime wakes a task that has used its turn up only now.
    tokio::task::yield_now().await;
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "nothing has happened");
}

// If this failed, two programs that both write a message before they read would wait for each other for ever.
#[tokio::test]
async fn both_ends_write_a_large_message_before_they_read() {
    let ((here, there), bytes) = (shared_pair().await, pattern(600 << 10));
    let ends = [here, there].map(|mut stream| {
        let bytes = bytes.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                stream.write_all(&bytes).await.unwrap();
                let mut got = vec![0; bytes.len()];
                stream.read_exact(&mut got).await.unwrap();
                assert!(got == bytes);
            }
        })
    });
    for end in ends {
        timeout(PATIENCE, end).await.unwrap().unwrap();
    }
}

// If this failed, a stream of a node would stay on TCP, or a request would wait for a wake-up that never comes.
#[tokio::test]
async fn many_small_requests_are_answered_on_every_transport() {
    for policy in policies() {
        let (mut here, mut there) =
            if matches!(policy, TransportPolicy::Auto) { shared_pair().await } else { pair(policy).await };
        let server = tokio::spawn(async move {
            let mut request = [0; 8];
            while there.read_exact(&mut request).await.is_ok() {
                there.write_all(&request).await.unwrap();
                there.flush().await.unwrap();
            }
        });
        for number in 0..2_000_u64 {
            let mut answer = [0; 8];
            here.write_all(&number.to_ne_bytes()).await.unwrap();
            here.flush().await.unwrap();
            timeout(PATIENCE, here.read_exact(&mut answer)).await.unwrap().unwrap();
            assert_eq!(u64::from_ne_bytes(answer), number);
        }
        let expected = match policy {
            TransportPolicy::Auto => Transport::SameNode,
            TransportPolicy::Wire(_) => Transport::Wire,
            _ => Transport::Tcp,
        };
        assert_eq!(here.transport(), expected);
        drop(here);
        timeout(PATIENCE, server).await.unwrap().unwrap();
    }
}

// If this failed, bytes of a task that ends without a flush would be lost, or its drop would stop the other tasks.
#[tokio::test]
async fn dropped_stream_sends_what_was_written() {
    for policy in policies() {
        let (mut here, mut there) = pair(policy).await;
        let bytes = pattern(400_000);
        let sent = bytes.clone();
        let writer = tokio::spawn(async move { here.write_all(&sent).await.unwrap() });
        let mut got = Vec::new();
        timeout(PATIENCE, there.read_to_end(&mut got)).await.unwrap().unwrap();
        writer.await.unwrap();
        assert!(got == bytes, "{policy:?}: {} bytes", got.len());
    }
}

// If this failed, a task would wait forever for a peer that does not speak the wire protocol.
#[tokio::test]
async fn silent_peer_ends_by_the_deadline_of_the_handshake() {
    let config = WireConfig { handshake_max: Duration::from_millis(50), ..wire() };
    let listener = AsyncListener::bind(any(), TransportPolicy::Wire(config)).unwrap();
    let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let error = timeout(PATIENCE, stream.read(&mut [0])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let refused = AsyncStream::connect(listener_that_is_gone(), &TransportPolicy::Auto).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

fn listener_that_is_gone() -> SocketAddr {
    std::net::TcpListener::bind(any()).unwrap().local_addr().unwrap()
}
