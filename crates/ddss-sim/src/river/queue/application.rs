//! Programs that put and take messages.

use super::checker::content;
use super::event::Event;
use super::plan::Member;
use super::world::World;
use ddss_river_core::{Take, Taken};

impl World {
    /// Lets a source make its next message, or close the queue behind the last one.
    pub(crate) fn run_source(&mut self, id: u16) {
        let (source, moment) = (self.plan.sources[usize::from(id)], self.moment());
        let process = &mut self.producers[usize::from(id)];
        if process.is_making || process.is_closed || !process.life.is_alive() {
            return;
        }
        if process.made == source.messages {
            process.is_closed = true;
            let mut out = Vec::new();
            process.engine.close(moment, &mut out);
            self.execute_producer(id, out);
        } else if let Some(place) = process.engine.reserve() {
            process.is_making = true;
            let after_us = self.vary(source.message_us);
            self.agenda.add(after_us, Event::Made(id, place));
        }
    }

    /// Puts a message that a source has made.
    pub(crate) fn put(&mut self, id: u16, place: u16) {
        let moment = self.moment();
        let process = &mut self.producers[usize::from(id)];
        process.is_making = false;
        let index = process.made;
        process.made += 1;
        process.ring[usize::from(place)] = content(id, index);
        self.checker.on_put(id, index);
        self.counts.messages += 1;
        let mut out = Vec::new();
        let given = process.engine.put(place, 8, 0, None, moment, &mut out);
        assert_eq!(given, index, "a producer counts its messages");
        self.execute_producer(id, out);
        self.run_source(id);
    }

    /// Lets the idle workers of a consumer take messages.
    pub(crate) fn run_sink(&mut self, id: u16) {
        loop {
            let now_us = self.agenda.now_us;
            let process = &mut self.consumers[usize::from(id)];
            let can_take = process.has_started && process.life.is_alive() && !process.has_ended && !process.is_fenced;
            if !can_take || process.in_work.len() == process.workers {
                return;
            }
            let mut out = Vec::new();
            let take = process.engine.take(now_us, &mut out);
            self.execute_consumer(id, out);
            match take {
                Take::Message(taken) => self.begin(id, taken),
                Take::Empty => return,
                Take::Ended => return self.end_sink(id),
                Take::Fenced => self.consumers[usize::from(id)].is_fenced = true,
            }
        }
    }

    fn begin(&mut self, id: u16, taken: Taken) {
        let process = &mut self.consumers[usize::from(id)];
        process.in_work.push(taken);
        let service_us = process.service_us;
        let found = process.rings[&taken.producer.0][usize::from(taken.header.slot)];
        self.checker.on_take(id, &taken, found);
        if self.plan.poison == Some((taken.producer.0, taken.header.attempt.index)) {
            let fault = super::plan::Fault::Kill(Member::Consumer(id));
            return self.agenda.add(0, Event::Fault(fault));
        }
        let after_us = self.vary(service_us);
        self.agenda.add(after_us, Event::Processed(id, taken));
    }

    /// Ends the processing of a message.
    pub(crate) fn finish(&mut self, id: u16, taken: Taken) {
        let now_us = self.agenda.now_us;
        let is_rejected = self.plan.reject_one_in > 0 && self.random.one_in(self.plan.reject_one_in);
        let (producer, index) = (taken.producer.0, taken.header.attempt.index);
        let process = &mut self.consumers[usize::from(id)];
        let Some(position) = process.in_work.iter().position(|other| *other == taken) else { return };
        process.in_work.remove(position);
        let mut out = Vec::new();
        if is_rejected {
            self.checker.on_rejected(producer, index);
            if index % 2 == 0 {
                process.engine.give_back(taken, &mut out);
            } else {
                process.engine.reject(taken, &mut out);
            }
        } else {
            self.checker.on_processed(producer, index);
            self.counts.processed += 1;
            self.counts.finished_us = now_us;
            process.engine.acknowledge(taken, now_us, &mut out);
        }
        self.execute_consumer(id, out);
        self.run_sink(id);
    }

    fn end_sink(&mut self, id: u16) {
        self.consumers[usize::from(id)].has_ended = true;
        let mut living = self.living_producers();
        living.retain(|producer| self.links.contains_key(&(*producer, id)));
        for &producer in &living {
            if !self.producers[usize::from(producer)].is_closed {
                self.checker.complain(format!("end: consumer {id} ended before producer {producer}"));
            }
        }
        self.checker.on_end(&format!("consumer {id}"), living.into_iter());
    }

    /// Returns the producers that no one declared dead, and that were not killed.
    pub(crate) fn living_producers(&self) -> Vec<u16> {
        let is_living = |id: &u16| {
            let life = &self.producers[usize::from(*id)].life;
            !life.is_dead && !life.is_killed
        };
        (0..self.producers.len() as u16).filter(is_living).collect()
    }
}
