//! Fields of a received message. Each is checked against the space.

use super::error::MessageError;
use super::writer::COARSE;
use crate::limits::{FETCHES_MAX, INDEX_END, INTERVAL_MAX, RANGE_BYTES};
use crate::model::{ChangedPages, Notice, PageId, PageRange, Rank, RankSet, VectorTime};

/// Takes fields from the front of a message.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) ranks: usize,
    pub(super) pages: u32,
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (field, rest) = self.bytes.split_first_chunk::<N>().ok_or(MessageError::Short)?;
        self.bytes = rest;
        Ok(*field)
    }

    pub(super) fn byte(&mut self) -> Result<u8, MessageError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn half(&mut self) -> Result<u16, MessageError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn word(&mut self) -> Result<u32, MessageError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<u64, MessageError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes the index of a lock, barrier, semaphore or counter.
    pub(super) fn index(&mut self) -> Result<u32, MessageError> {
        let index = self.word()?;
        if index < INDEX_END { Ok(index) } else { Err(MessageError::Field("index", index.into())) }
    }

    pub(super) fn rank(&mut self) -> Result<Rank, MessageError> {
        let number = self.byte()?;
        let rank = Rank::new(number.into()).filter(|rank| rank.index() < self.ranks);
        rank.ok_or(MessageError::Field("rank", number.into()))
    }

    pub(super) fn rank_set(&mut self) -> Result<RankSet, MessageError> {
        let bits = self.half()?;
        RankSet::from_bits(bits, self.ranks).ok_or(MessageError::Field("ranks", bits.into()))
    }

    pub(super) fn page(&mut self) -> Result<PageId, MessageError> {
        let page = self.word()?;
        if page < self.pages { Ok(PageId(page)) } else { Err(MessageError::Field("page", page.into())) }
    }

    pub(super) fn slot(&mut self) -> Result<u16, MessageError> {
        let slot = self.half()?;
        if slot < FETCHES_MAX { Ok(slot) } else { Err(MessageError::Field("slot", slot.into())) }
    }

    pub(super) fn interval(&mut self) -> Result<u32, MessageError> {
        let interval = self.word()?;
        if interval <= INTERVAL_MAX { Ok(interval) } else { Err(MessageError::Field("interval", interval.into())) }
    }

    pub(super) fn time(&mut self) -> Result<VectorTime, MessageError> {
        let mut time = VectorTime::default();
        for rank in (0..self.ranks).filter_map(Rank::new) {
            time.raise(rank, self.interval()?);
        }
        Ok(time)
    }

    /// Takes the pages of an interval.
    fn range_list(&mut self, count: u16) -> Result<Vec<PageRange>, MessageError> {
        // The length is checked before anything is allocated for it.
        if self.bytes.len() < usize::from(count) * RANGE_BYTES {
            return Err(MessageError::Short);
        }
        let mut range = || Ok(PageRange { first: PageId(self.word()?), pages: self.word()? });
        let ranges = (0..count).map(|_| range()).collect::<Result<Vec<_>, _>>()?;
        let is_valid = PageRange::are_of_interval(&ranges, self.pages);
        if is_valid { Ok(ranges) } else { Err(MessageError::Field("page ranges", count.into())) }
    }

    pub(super) fn ranges(&mut self) -> Result<Vec<PageRange>, MessageError> {
        let count = self.half()?;
        self.range_list(count)
    }

    pub(super) fn notices(&mut self) -> Result<Option<Vec<Notice>>, MessageError> {
        let count = self.half()?;
        if count == u16::MAX {
            return Ok(None);
        }
        let mut notices = Vec::new();
        for _ in 0..count {
            let interval = self.interval()?;
            let ranges = self.half()?;
            let pages =
                if ranges == COARSE { ChangedPages::Coarse } else { ChangedPages::Exact(self.range_list(ranges)?) };
            notices.push(Notice { interval, pages });
        }
        Ok(Some(notices))
    }

    /// Takes the rest of the message.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
}
