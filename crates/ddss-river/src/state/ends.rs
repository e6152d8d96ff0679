//! Both ends of the queue in this process, and what goes to and comes from each member.

use super::failed_messages::FailedMessages;
use super::failure::Failure;
use super::message_end::MessageEnd;
use super::place::{MemberState, Post};
use super::slots::SlotMemory;
use super::waiters::Waiters;
use ddss_group::Member;
use ddss_ipc::MemoryError;
use ddss_river_core::codec::{Message, decode, encode};
use ddss_river_core::{
    ConfigError, Consumer, ConsumerAction, ConsumerEvent, ConsumerId, EdgeId, Header, Moment, Producer, ProducerAction,
    ProducerEvent, ProducerId, QueueConfig, Route, Take, Taken, ToConsumer, ToProducer,
};
use std::task::Waker;
use std::time::Instant;

/// The only edge.
const EDGE: EdgeId = EdgeId(0);
/// Posts that wait for a member at most. One that reads nothing, and asks for answers, is at fault.
const POSTS_MAX: usize = 1 << 16;

/// A member sent what no member sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Violation;

/// Both ends of the queue in this process, and what goes to and comes from each member. This process is a member too: its own
/// messages are copied from its send slots into its ring.
#[derive(Debug)]
pub(crate) struct Ends {
    config: QueueConfig,
    producer: Producer,
    consumer: Consumer,
    send_slots: SlotMemory,
    ours: Member,
    places: Vec<MemberState>,
    next_id: u16,
    /// Handles that keep this process a consumer, and messages that the application has not finished.
    consumers: usize,
    is_closed: bool,
    failure: Option<Failure>,
    /// Messages that ended or were rejected by too many consumers.
    failed: FailedMessages,
    /// Messages that failed or were dropped since the last report.
    unprocessed: u64,
    /// Members whose messages are damaged: the service thread closes their connections.
    damaged: Vec<Member>,
    waiters: Waiters,
    has_changed: bool,
    /// True while this process carries what it sends to itself.
    is_delivering: bool,
    start: Instant,
    random: u64,
}

impl Ends {
    /// Creates both ends of a member of a queue with so many places. `random` is any number.
    pub(crate) fn new(config: QueueConfig, ours: Member, members: u16, random: u64) -> Result<Self, EndsError> {
        let id = 0;
        let mut ends = Self {
            producer: Producer::new(EDGE, ProducerId(id), config)?,
            consumer: Consumer::new(EDGE, ConsumerId(id), config)?,
            send_slots: SlotMemory::create("ddss-river-send", config.send_slots, config.message_bytes_max)?,
            ours,
            places: (0..members).map(|_| MemberState::default()).collect(),
            next_id: id,
            consumers: 0,
            is_closed: false,
            failure: None,
            failed: FailedMessages::default(),
            unprocessed: 0,
            damaged: Vec::new(),
            waiters: Waiters::default(),
            has_changed: false,
            is_delivering: false,
            start: Instant::now(),
            random,
            config,
        };
        ends.see(ours);
        ends.ring(ours)?;
        ends.connect_producer(ours);
        ends.connect_consumer(ours);
        Ok(ends)
    }

    fn place(&mut self, member: Member) -> &mut MemberState {
        &mut self.places[usize::from(member.0)]
    }

    /// Returns the member that has a process, or its messages.
    fn member_of(&self, id: u16) -> Option<Member> {
        let is_it = |place: &MemberState| place.id == Some(id) || place.ring_owner == Some(id);
        self.places.iter().position(is_it).map(|index| Member(index as u16))
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn moment(&mut self) -> Moment {
        // The engine mixes it.
        self.random = self.random.wrapping_add(1);
        Moment { now_us: self.now_us(), random: self.random }
    }

    // Members.

    /// A process has taken the place of a member.
    pub(crate) fn see(&mut self, member: Member) {
        // No end is reported of a process that was never connected: it had no messages, and is gone.
        self.end(member, true);
        while self.member_of(self.next_id).is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.place(member).id = Some(id);
        self.place(member).posts.clear();
        self.at_consumer(ConsumerEvent::Joined(ProducerId(id)));
    }

    /// Returns the ring for the messages of a member, for its present process. `None` while messages of the process before
    /// are in it: one that is taken may be given back.
    pub(crate) fn ring(&mut self, member: Member) -> Result<Option<SlotMemory>, MemoryError> {
        let owner = self.place(member).ring_owner;
        if owner.is_some_and(|owner| self.consumer.has_unfinished(ProducerId(owner))) {
            return Ok(None);
        }
        let config = self.config;
        let place = self.place(member);
        place.ring_owner = place.id;
        if place.ring.is_none() {
            let ring = SlotMemory::create("ddss-river-ring", config.window, config.message_bytes_max)?;
            place.ring = Some(ring);
        }
        Ok(place.ring.clone())
    }

    /// The ring of a member is open to it: it may send messages.
    pub(crate) fn connect_producer(&mut self, member: Member) {
        if let Some(id) = self.place(member).id {
            self.at_consumer(ConsumerEvent::Connected(ProducerId(id)));
        }
    }

    /// The ring at a member is open to this process: it may ask for messages.
    pub(crate) fn connect_consumer(&mut self, member: Member) {
        if let Some(id) = self.place(member).id {
            self.at_producer(ProducerEvent::Connected(ConsumerId(id)));
        }
    }

    /// A member has left in order, or is lost.
    pub(crate) fn end(&mut self, member: Member, has_left: bool) {
        let Some(id) = self.place(member).id else { return };
        let (producer, consumer) = (ProducerId(id), ConsumerId(id));
        if has_left {
            self.at_producer(ProducerEvent::Left(consumer));
            self.at_consumer(ConsumerEvent::Left(producer));
        } else {
            self.at_producer(ProducerEvent::Dead(consumer));
            self.at_consumer(ConsumerEvent::Dead(producer));
        }
        let place = self.place(member);
        place.id = None;
        place.posts.clear();
    }

    /// The queue is closed: no message follows those that were put.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            let (moment, mut out) = (self.moment(), Vec::new());
            self.producer.close(moment, &mut out);
            self.execute_producer(out);
        }
    }

    /// Ends all calls. The first reason stays.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if failure == Failure::Fenced {
            self.at_consumer(ConsumerEvent::Fenced);
        }
        self.failure.get_or_insert(failure);
        self.has_changed = true;
    }

    // Bytes from and to members.

    /// Handles a message of a member: its parts in their order.
    pub(crate) fn receive(&mut self, from: Member, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() {
            let (message, rest) = decode(bytes).map_err(|_| Violation)?;
            self.receive_one(from, message)?;
            bytes = rest;
        }
        Ok(())
    }

    fn receive_one(&mut self, from: Member, message: Message<'_>) -> Result<(), Violation> {
        let id = self.place(from).id.ok_or(Violation)?;
        match message {
            Message::Put { route, header, inline } if route == self.route_from(from) => {
                let event = ConsumerEvent::Message { from: ProducerId(id), header };
                self.hand_to_consumer(event)?;
                if let (Some(bytes), Some(ring)) = (inline, &self.place(from).ring) {
                    ring.write(header.slot, bytes);
                }
            }
            Message::ToConsumer(route, notice) if route == self.route_from(from) => {
                self.hand_to_consumer(ConsumerEvent::Notice { from: ProducerId(id), notice })?;
            }
            Message::ToProducer(route, notice) if route == self.route_to(from) => {
                self.at_producer(ProducerEvent::Notice { from: ConsumerId(id), notice });
            }
            _ => return Err(Violation),
        }
        Ok(())
    }

    /// Returns the route of messages of a member. Members name each other by their numbers.
    fn route_from(&self, member: Member) -> Route {
        Route { edge: EDGE, producer: ProducerId(member.0), consumer: ConsumerId(self.ours.0) }
    }

    /// Returns the route of messages to a member.
    pub(crate) fn route_to(&self, member: Member) -> Route {
        Route { edge: EDGE, producer: ProducerId(self.ours.0), consumer: ConsumerId(member.0) }
    }

    /// Returns the send slots.
    pub(crate) fn send_slots(&self) -> &SlotMemory {
        &self.send_slots
    }

    /// Returns the bytes of a ring: all rings of a queue have the same slots.
    pub(crate) fn ring_bytes(&self) -> u64 {
        let own = &self.places[usize::from(self.ours.0)];
        own.ring.as_ref().expect("the own ring").bytes()
    }

    /// Takes the next thing that has to go to a member.
    pub(crate) fn next_post(&mut self, member: Member) -> Option<Post> {
        self.place(member).posts.pop_front()
    }

    /// Puts a thing back that has to go to a member before all others.
    pub(crate) fn return_post(&mut self, member: Member, post: Post) {
        self.place(member).posts.push_front(post);
    }

    /// Returns true if something has to go to another member.
    pub(crate) fn has_posts(&self) -> bool {
        !self.damaged.is_empty() || self.places.iter().any(|place| !place.posts.is_empty())
    }

    /// Takes the members whose messages are damaged.
    pub(crate) fn take_damaged(&mut self) -> Vec<Member> {
        std::mem::take(&mut self.damaged)
    }

    // Calls of the application.

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the messages of this process that are not acknowledged yet, and have not failed.
    pub(crate) fn held(&self) -> usize {
        self.producer.held()
    }

    /// Returns the engine of the producing end.
    pub(crate) fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Takes the number of messages that failed or were dropped since the last call.
    pub(crate) fn take_unprocessed(&mut self) -> u64 {
        std::mem::take(&mut self.unprocessed)
    }

    /// Reserves a send slot.
    pub(crate) fn reserve(&mut self) -> Option<u16> {
        self.producer.reserve()
    }

    /// Sends the message that the caller has written into a reserved slot. Returns false if the queue was closed meanwhile.
    pub(crate) fn put(&mut self, slot: u16, length: u32, checksum: u32) -> bool {
        if self.is_closed {
            self.producer.release(slot);
            return false;
        }
        let (moment, mut out) = (self.moment(), Vec::new());
        self.producer.put(slot, length, checksum, None, moment, &mut out);
        self.execute_producer(out);
        true
    }

    /// Takes a message and copies its bytes. The caller finishes it, and counts as a consumer until then.
    pub(crate) fn take(&mut self) -> (Take, Vec<u8>) {
        let mut out = Vec::new();
        let take = self.consumer.take(self.now_us(), &mut out);
        self.execute_consumer(out);
        let Take::Message(taken) = take else { return (take, Vec::new()) };
        let ring = self.ring_with(taken.producer).expect("a ring with the message");
        self.consumers += 1;
        (take, ring.read(taken.header.slot, taken.header.length))
    }

    /// Ends a message that was taken. Returns true if it is acknowledged, and no other consumer has it as well.
    pub(crate) fn finish(&mut self, taken: Taken, end: MessageEnd) -> bool {
        let (mut out, mut is_in_time) = (Vec::new(), false);
        match end {
            MessageEnd::Processed => is_in_time = self.consumer.acknowledge(taken, self.now_us(), &mut out),
            MessageEnd::GivenBack => self.consumer.give_back(taken, &mut out),
            MessageEnd::Rejected => self.consumer.reject(taken, &mut out),
        }
        self.has_changed = true;
        self.execute_consumer(out);
        self.remove_consumer();
        is_in_time
    }

    /// Rejects a message whose bytes are not those of its producer, and ends the connection to it.
    pub(crate) fn report_damage(&mut self, taken: Taken) {
        self.finish(taken, MessageEnd::Rejected);
        // Not of the process that has the place of a dead producer now.
        let is_present = |place: &MemberState| place.id == Some(taken.producer.0);
        let member = self.places.iter().position(is_present).map(|index| Member(index as u16));
        self.damaged.extend(member.filter(|member| *member != self.ours));
    }

    /// Adds a handle that keeps this process a consumer.
    pub(crate) fn add_consumer(&mut self) {
        self.consumers += 1;
    }

    /// Removes a handle. Behind the last one, others get the messages that wait here.
    pub(crate) fn remove_consumer(&mut self) {
        self.consumers -= 1;
        if self.consumers == 0 {
            let mut out = Vec::new();
            self.consumer.withdraw(&mut out);
            self.has_changed = true;
            self.execute_consumer(out);
        }
    }

    /// Returns true if a message is here that the application has not finished.
    pub(crate) fn has_messages(&self) -> bool {
        self.consumer.held() > 0
    }

    /// Returns the number of messages that wait here and whose producers are dead.
    pub(crate) fn last_copies(&self) -> usize {
        self.consumer.last_copies()
    }

    /// Takes the failed messages that are kept aside.
    pub(crate) fn take_failed(&mut self) -> Vec<Vec<u8>> {
        self.failed.take()
    }

    // Calls that wait.

    pub(super) fn wait(&mut self, waker: &Waker, deadline: Instant) {
        self.waiters.add(waker, deadline);
    }

    /// Takes the calls that wait, if something has changed or the deadline of one has passed.
    pub(super) fn take_woken(&mut self) -> Vec<(Waker, Instant)> {
        let is_due = || self.waiters.next_deadline().is_some_and(|deadline| deadline <= Instant::now());
        if std::mem::take(&mut self.has_changed) || is_due() { self.waiters.take() } else { Vec::new() }
    }

    // The engines.

    fn at_producer(&mut self, event: ProducerEvent) {
        let (moment, mut out) = (self.moment(), Vec::new());
        self.producer.handle(event, moment, &mut out);
        self.execute_producer(out);
    }

    fn at_consumer(&mut self, event: ConsumerEvent) {
        // Only messages and notices can break the protocol.
        let _ = self.hand_to_consumer(event);
    }

    fn hand_to_consumer(&mut self, event: ConsumerEvent) -> Result<(), Violation> {
        let mut out = Vec::new();
        let result = self.consumer.handle(event, &mut out);
        self.has_changed = true;
        self.execute_consumer(out);
        result.map_err(|_| Violation)
    }

    fn execute_producer(&mut self, actions: Vec<ProducerAction>) {
        self.has_changed = true;
        for action in actions {
            match action {
                ProducerAction::Write { to, header } => self.write(to, header),
                ProducerAction::Send { to, notice } => self.notify_consumer(to, notice),
                ProducerAction::Failed { index: _, place, length } => {
                    self.unprocessed += 1;
                    self.failed.add(self.send_slots.read(place, length));
                }
                ProducerAction::Dropped { .. } => self.unprocessed += 1,
                ProducerAction::FlowLost { consumer } => self.lose_flow(consumer.0),
                ProducerAction::Acknowledged { .. } | ProducerAction::Ended => {}
            }
        }
        self.deliver_own();
    }

    fn execute_consumer(&mut self, actions: Vec<ConsumerAction>) {
        // An attempt to take that finds nothing changes nothing: it must not wake the calls that wait, its own among them.
        self.has_changed |= !actions.is_empty();
        for action in actions {
            match action {
                ConsumerAction::Send { to, notice } => self.notify_producer(to, notice),
                ConsumerAction::Failed { producer, header } => {
                    if let Some(ring) = self.ring_with(producer) {
                        self.failed.add(ring.read(header.slot, header.length));
                    }
                }
                ConsumerAction::FlowLost { producer } => self.lose_flow(producer.0),
            }
        }
        self.deliver_own();
    }

    /// Returns the ring with the messages of a producer.
    fn ring_with(&mut self, producer: ProducerId) -> Option<SlotMemory> {
        let member = self.member_of(producer.0)?;
        self.place(member).ring.clone()
    }

    /// Carries what this process sends to itself, in its order. What follows from it waits behind it.
    fn deliver_own(&mut self) {
        if std::mem::replace(&mut self.is_delivering, true) {
            return;
        }
        while let Some(post) = self.next_post(self.ours) {
            let delivered = match post {
                Post::Message { header, .. } => {
                    let (slot, length) = (header.attempt.place, header.length);
                    let place = &self.places[usize::from(self.ours.0)];
                    let (ring, id) = (place.ring.as_ref().expect("the own ring"), place.id.expect("the own number"));
                    self.send_slots.copy(slot, ring, header.slot, length);
                    self.hand_to_consumer(ConsumerEvent::Message { from: ProducerId(id), header })
                }
                Post::Notice(bytes) => self.receive(self.ours, &bytes),
            };
            delivered.expect("this process keeps to the protocol");
        }
        self.is_delivering = false;
    }

    fn lose_flow(&mut self, id: u16) {
        if let Some(member) = self.member_of(id) {
            self.fail(Failure::Lost(member));
        }
    }

    fn write(&mut self, to: ConsumerId, header: Header) {
        if let Some(member) = self.member_of(to.0) {
            self.place(member).posts.push_back(Post::Message { header, is_written: false });
        }
    }

    fn notify_consumer(&mut self, to: ConsumerId, notice: ToConsumer) {
        if let Some(member) = self.member_of(to.0) {
            self.push_notice(member, &Message::ToConsumer(self.route_to(member), notice));
        }
    }

    fn notify_producer(&mut self, to: ProducerId, notice: ToProducer) {
        if let Some(member) = self.member_of(to.0) {
            self.push_notice(member, &Message::ToProducer(self.route_from(member), notice));
        }
    }

    fn push_notice(&mut self, member: Member, message: &Message<'_>) {
        if self.place(member).posts.len() >= POSTS_MAX {
            self.damaged.push(member);
            return;
        }
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        self.place(member).posts.push_back(Post::Notice(bytes));
    }
}

/// Reason why both ends cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_river_core::{Attempt, Flags};

    const OURS: Member = Member(0);
    const OTHER: Member = Member(1);

    fn put(number: u8, slot: u16) -> Vec<u8> {
        let attempt = Attempt { index: number.into(), place: slot, number: 1 };
        let header = Header { attempt, slot, length: 1, checksum: 0, unit: None, flags: Flags::default() };
        let route = Route { edge: EDGE, producer: ProducerId(OTHER.0), consumer: ConsumerId(OURS.0) };
        let mut bytes = Vec::new();
        encode(&Message::Put { route, header, inline: Some(&[number]) }, &mut bytes);
        bytes
    }

    fn connect(ends: &mut Ends) {
        ends.see(OTHER);
        assert!(ends.ring(OTHER).unwrap().is_some());
        ends.connect_producer(OTHER);
    }

    #[test]
    fn ring_of_a_dead_member_is_its_successors_once_its_messages_are_taken() {
        // If this broke, a process that takes the place of a dead one would overwrite messages that nobody has any more.
        let mut ends = Ends::new(QueueConfig::default(), OURS, 2, 7).unwrap();
        connect(&mut ends);
        assert_eq!(ends.take().0, Take::Empty);
        ends.receive(OTHER, &put(5, 0)).unwrap();
        ends.receive(OTHER, &put(6, 1)).unwrap();
        ends.end(OTHER, false);
        ends.see(OTHER);
        for number in [5, 6] {
            assert!(ends.ring(OTHER).unwrap().is_none(), "{number} is in the ring");
            let (Take::Message(taken), bytes) = ends.take() else { panic!("{number} is lost") };
            assert_eq!(bytes, [number]);
            assert!(!ends.finish(taken, MessageEnd::Processed), "its producer is gone and does not learn it");
        }
        assert!(ends.ring(OTHER).unwrap().is_some());
        ends.connect_producer(OTHER);
        // It did not ask again: the handles of the messages were the last ones.
        assert_eq!(ends.take().0, Take::Empty);
        ends.receive(OTHER, &put(7, 1)).unwrap();
        assert_eq!(ends.take().1, [7]);
    }

    #[test]
    fn queue_ends_without_a_process_that_was_replaced_before_it_connected() {
        // If this broke, a process that died while it joined would hold all consumers for ever.
        let mut ends = Ends::new(QueueConfig::default(), OURS, 2, 7).unwrap();
        ends.see(OTHER);
        connect(&mut ends);
        ends.close();
        assert_eq!(ends.take().0, Take::Empty);
        ends.end(OTHER, false);
        assert_eq!(ends.take().0, Take::Ended);
    }

    #[test]
    fn messages_of_a_member_under_a_foreign_name_are_refused() {
        // If this broke, one member could acknowledge messages in the name of another.
        let mut ends = Ends::new(QueueConfig::default(), OURS, 3, 7).unwrap();
        connect(&mut ends);
        assert_eq!(ends.take().0, Take::Empty);
        ends.see(Member(2));
        ends.connect_producer(Member(2));
        assert_eq!(ends.receive(Member(2), &put(5, 0)), Err(Violation));
        assert_eq!(ends.receive(OTHER, &put(5, 0)), Ok(()));
        assert_eq!(ends.receive(OTHER, &put(5, 0)), Err(Violation), "the slot is full");
        assert_eq!(ends.receive(OTHER, &[9]), Err(Violation));
    }

    #[test]
    fn attempt_that_finds_nothing_wakes_no_call() {
        // If this broke, a consumer without messages would keep a whole core, and the lock that its service thread needs.
        let mut ends = Ends::new(QueueConfig::default(), OURS, 2, 7).unwrap();
        connect(&mut ends);
        assert_eq!(ends.take().0, Take::Empty);
        let far = Instant::now() + std::time::Duration::from_secs(3600);
        ends.wait(Waker::noop(), far);
        assert!(!ends.take_woken().is_empty(), "the first attempt asked for messages");
        for _ in 0..3 {
            assert_eq!(ends.take().0, Take::Empty);
            ends.wait(Waker::noop(), far);
            assert!(ends.take_woken().is_empty());
        }
        ends.receive(OTHER, &put(5, 0)).unwrap();
        assert!(!ends.take_woken().is_empty());
    }
}
