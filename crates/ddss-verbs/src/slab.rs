//! Values by slot, with a generation for each slot: the id of a removed value finds nothing.

use std::marker::PhantomData;

/// Handle of a value: its slot, and the number of values that were in this slot before, wrapping.
pub(crate) trait SlotId: Copy {
    /// Makes a handle.
    fn new(index: u32, generation: u32) -> Self;
    /// Returns the slot.
    fn index(self) -> u32;
    /// Returns the generation of the slot.
    fn generation(self) -> u32;
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table with at most `slots_max` values.
#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    slots_max: usize,
    ids: PhantomData<I>,
}

impl<I: SlotId, T> Slab<I, T> {
    pub(crate) fn new(slots_max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), slots_max, ids: PhantomData }
    }

    /// Returns the number of values, including those that were [taken](Self::take) and not [released](Self::release).
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the id of the next value; `None` if the table is full.
    pub(crate) fn next(&mut self) -> Option<I> {
        if self.free.is_empty() {
            if self.slots.len() >= self.slots_max {
                return None;
            }
            self.free.push(self.slots.len() as u32);
            self.slots.push(Slot { generation: 0, value: None });
        }
        let index = *self.free.last()?;
        Some(I::new(index, self.slots[index as usize].generation.wrapping_add(1)))
    }

    /// Inserts a value with the id from [`next`](Self::next).
    pub(crate) fn insert(&mut self, id: I, value: T) {
        let index = self.free.pop().expect("`next` made sure that there is one");
        assert_eq!(index, id.index(), "a value goes where `next` said");
        self.slots[index as usize] = Slot { generation: id.generation(), value: Some(value) };
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let slot = self.slots.get(id.index() as usize)?;
        if slot.generation == id.generation() { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation == id.generation() { slot.value.as_mut() } else { None }
    }

    /// Returns the value in a slot.
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// Takes a value out of its slot, to be [put](Self::put) back or [released](Self::release).
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        self.slots.get_mut(index as usize)?.value.take()
    }

    pub(crate) fn put(&mut self, index: u32, value: T) {
        self.slots[index as usize].value = Some(value);
    }

    /// Frees the slot of a value that was taken out for good.
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Takes a value out for good.
    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        self.get(id)?;
        let value = self.take(id.index());
        self.release(id.index());
        value
    }

    /// Iterates over all values in the order of their slots.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Iterates over all values in the order of their slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RegionId;

    #[test]
    fn id_of_removed_value_finds_nothing() {
        // If this failed, work posted to an ended connection would reach the next one in its slot.
        let mut slab: Slab<RegionId, u8> = Slab::new(2);
        let first = slab.next().unwrap();
        assert_eq!(slab.next(), Some(first), "without an insert the next id stays the same");
        assert_eq!((slab.get(first), slab.len()), (None, 0));
        slab.insert(first, 1);
        let second = slab.next().unwrap();
        slab.insert(second, 2);
        assert_eq!((slab.next(), slab.len()), (None, 2), "the table is full");
        assert_eq!(slab.remove(first), Some(1));
        assert_eq!((slab.remove(first), slab.get(first)), (None, None));
        assert_eq!(slab.get_mut(first), None);
        let third = slab.next().unwrap();
        assert_eq!((third.index, third.generation), (first.index, first.generation + 1));
        slab.insert(third, 3);
        assert_eq!((slab.get(first), slab.get(third), slab.get(second)), (None, Some(&3), Some(&2)));
    }

    #[test]
    fn taken_value_keeps_its_slot() {
        // If this failed, a connection accepted during the work on another one would take its slot.
        let mut slab: Slab<RegionId, u8> = Slab::new(1);
        let id = slab.next().unwrap();
        slab.insert(id, 7);
        assert_eq!(slab.take(id.index), Some(7));
        assert_eq!((slab.next(), slab.at(id.index), slab.len()), (None, None, 1));
        slab.put(id.index, 7);
        assert_eq!((slab.get(id), slab.at(id.index)), (Some(&7), Some(&7)));
        slab.iter_mut().for_each(|value| *value += 1);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [&8]);
        slab.take(id.index);
        slab.release(id.index);
        assert!(slab.next().is_some_and(|next| next != id));
    }
}
