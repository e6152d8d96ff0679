//! Limits of this crate.

use std::time::Duration;

/// Bytes of one ring. Small enough that the rings of many streams stay in the cache.
pub const RING_BYTES: usize = 256 << 10;
/// Bytes before the rings.
pub const HEADER_BYTES: usize = 4096;
/// Bytes before the common memory that each end has for itself: one page of the machine with the largest pages.
pub const OWN_BYTES: usize = 64 << 10;
/// Bytes of a stream's shared memory.
pub const LINK_BYTES: usize = HEADER_BYTES + 2 * RING_BYTES;
/// Free bytes from which a ring counts as writable, so that a full ring does not wake its writer for each byte.
pub const WRITABLE_BYTES: usize = RING_BYTES / 4;
/// Calls with bytes after which the acceptor offers shared memory.
pub const OFFER_CALLS: u32 = 3;
/// Bytes after which the acceptor offers shared memory.
pub const OFFER_BYTES: u64 = 64 << 10;
/// Calls without an offer after which the connector stops looking for one.
pub const LOOK_CALLS: u32 = 64;
/// Writes between two looks at the peer's control socket.
pub const PROBE_WRITES: u32 = 64;
/// Parts of one vectored call; a longer list is carried out in part, as the kernel may do.
pub const PARTS_MAX: usize = 1024;
/// Parts for which a call on TCP needs little of the stack.
pub const TCP_PARTS: usize = 16;
/// Search for a free port from which ports count as scarce.
pub const SLOW_BIND: Duration = Duration::from_millis(1);
/// Connections that stay on TCP after the first slow search for a port.
pub const SKIPS_MIN: u32 = 64;
/// The most connections that stay on TCP after a slow search.
pub const SKIPS_MAX: u32 = 4096;
/// Longest wait for another thread inside the same direction of a stream, before the call ends as one without bytes.
pub const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Longest time that a thread spins before it sleeps, in nanoseconds.
pub const SPIN_MAX_NS: u64 = 20_000;
/// Shortest spin, in nanoseconds. Below it a thread does not spin at all.
pub const SPIN_MIN_NS: u64 = 2_000;
/// Sleep of a thread beside a set of `epoll` that has yet to take the bell of the stream.
pub const LOOK_BESIDE_SET: Duration = Duration::from_millis(10);
/// Bytes of each table of sockets that a search for the owner of one reads at most.
pub(crate) const OWNER_BYTES: usize = 16 << 20;

/// Time in which the reader takes nothing from a full ring before its writer goes on by TCP, which holds more.
pub const STALL_AFTER: Duration = Duration::from_millis(10);
/// Phases of the peer that one call to read takes bytes of.
pub(crate) const PHASES_MAX: usize = 4;

/// Written bytes from which an idle ring gives its memory back.
pub(crate) const IDLE_BYTES: u64 = 16 << 10;
/// Sleep without an event after which a thread looks for idle rings.
pub(crate) const IDLE_AFTER: Duration = Duration::from_millis(100);
/// Streams that a thread looks at before a sleep.
pub(crate) const IDLE_LOOKS: u32 = 4;
/// Bytes of rings that one call takes from a control socket.
pub(crate) const RINGS_BYTES: usize = 512;
/// Calls that take rings before a thread goes on.
pub(crate) const RINGS_CALLS: u32 = 8;

/// Longest wait for the answer to the hello of a stream on the wire.
pub const WIRE_HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Longest time that dropping a stream on the wire takes to send what is left.
pub const WIRE_CLOSE_MAX: Duration = Duration::from_secs(1);
/// Bytes of a stream on the wire that the kernel has and has not sent. With 128 KiB a slow receiver gets few large frames, and the
/// bandwidth on loopback is that without the limit (`cargo bench --bench wire`).
pub const WIRE_UNSENT_MAX: u32 = 128 << 10;
/// Bytes from which a write without a copy advertises its memory. Below it the request costs more than the copies.
pub const WIRE_ZERO_COPY_MIN: usize = 256 << 10;
/// Bytes of one advertisement at most.
pub const WIRE_ADVERTISED_MAX: usize = 1 << 30;
/// Room from which a call to read reads the peer's memory in place. With less, each request would wait for few bytes.
pub const WIRE_IN_PLACE_MIN: usize = 32 << 10;
/// Bytes of one read of the peer's memory at most: those that a call can leave behind if it ends early.
pub const WIRE_READ_MAX: usize = 4 << 20;
/// Interval between two looks at what the peer's kernel has.
pub const LINGER_LOOK_EVERY: Duration = Duration::from_millis(1);
/// Bytes of private data in a start frame of MPA.
pub const PRIVATE_DATA_MAX: usize = 512;

/// Silence of an accepted connection after which a pump takes its peer for one without the wire, once the program has something to say.
pub const PUMP_HELLO_WAIT: Duration = Duration::from_secs(2);
/// Longest time for the plain connection to a peer that does not speak the wire.
pub const PUMP_CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest time in which a program takes the rest of a broken connection before it is reset.
pub const PUMP_BREAK_MAX: Duration = Duration::from_secs(1);
/// Longest time that a peer goes on after the program has closed its end, as TCP's.
pub const PUMP_ORPHAN_MAX: Duration = Duration::from_secs(60);
/// Longest connect of a non-blocking socket that a rule puts on the wire. Beyond it the connection stays on TCP.
pub const PUMP_DIAL_MAX: Duration = Duration::from_secs(1);
/// Moves of one connection before others get their turn.
pub const PUMP_ROUNDS_MAX: usize = 16;
/// Connections of a pump.
pub const PUMP_CONNECTIONS_MAX: usize = 16_000;
/// Program images of a pump.
pub const PUMP_CONTROLS_MAX: usize = 4096;
/// Connections that a pump takes from one program image in one turn.
pub const PUMP_HANDOVERS_MAX: usize = 128;
/// Events that one wait of a pump returns.
pub const PUMP_EVENTS: usize = 256;
/// Send buffer that a program's end asks for.
pub const PUMP_SEND_BUFFER_BYTES: usize = 256 << 10;
/// Send buffer below which a connection stays on TCP: a quarter of it is more than the largest piece of memory of one call.
pub const PUMP_SEND_BUFFER_MIN: usize = 320 << 10;
/// Bytes that a pump moves at once.
pub const PUMP_SCRATCH_BYTES: usize = 64 << 10;

const _: () = assert!(RING_BYTES.is_power_of_two());
const _: () = assert!(WRITABLE_BYTES <= RING_BYTES);
const _: () = assert!(WIRE_READ_MAX <= WIRE_ADVERTISED_MAX && WIRE_ADVERTISED_MAX <= u32::MAX as usize);
