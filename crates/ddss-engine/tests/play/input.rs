//! Values from arbitrary bytes.

use ddss_core::Model;

/// Input bytes, and zeroes behind their end.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl Input<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&byte, left)) = self.0.split_first() else { return 0 };
        self.0 = left;
        byte
    }

    pub(super) fn word(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => small.into(),
            200..=219 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            220..=239 => u64::from(self.byte()) * 64,
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    pub(super) fn one_in(&mut self, of: u8) -> bool {
        self.byte() % of == of - 1
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.byte()) % all.len().max(1)).copied()
    }

    pub(super) fn model(&mut self) -> Model {
        match self.byte() % 7 {
            0 => Model::Null,
            1 => Model::Read,
            2 => Model::Write,
            3 => Model::Version,
            4 => Model::Delta(self.byte().into()),
            5 => Model::Temporal(self.word() as u32),
            _ => Model::Strict,
        }
    }
}
