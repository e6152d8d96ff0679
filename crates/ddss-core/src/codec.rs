//! Little-endian encoding of message fields, each checked on decoding.

use crate::failure::Failure;
use crate::limits::{COPIES_MAX_OF_SEGMENT, HISTORY_MAX, MESSAGE_BYTES_MAX, RANGES_MAX};
use crate::model::coherence::Model;
use crate::model::segment::{Name, Permissions, Principal};
use crate::model::spec::{Storage, decode_row_bytes, encode_row_bytes};
use crate::peer::message::{RemoteWindow, SegmentInfo};
use crate::peer::replica_reply::{OfferReply, ReplicaAck};
use crate::request::operation::{LockToken, PutConditions};
use crate::request::request::Request;
use crate::{ClientId, SegmentId, Version};
use arrayvec::ArrayVec;

/// Output buffer for fields, at most `N` bytes.
#[derive(Default)]
pub(crate) struct Writer<const N: usize = MESSAGE_BYTES_MAX>(pub(crate) ArrayVec<u8, N>);

impl<const N: usize> Writer<N> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.try_extend_from_slice(bytes).expect("every message fits: fields and tails are bounded");
        self
    }
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub(crate) fn option(&mut self, value: Option<u64>) -> &mut Self {
        self.u8(value.is_some().into()).u64(value.unwrap_or(0))
    }
    pub(crate) fn client(&mut self, client: ClientId) -> &mut Self {
        self.u32(client.index).u32(client.generation)
    }
    pub(crate) fn identity(&mut self, principal: Principal) -> &mut Self {
        self.u32(principal.uid).u32(principal.gid)
    }
    pub(crate) fn window(&mut self, window: RemoteWindow) -> &mut Self {
        self.u32(window.key).u64(window.base).u64(window.bytes)
    }
    pub(crate) fn info(&mut self, info: &SegmentInfo) -> &mut Self {
        let (kind, parameter) = info.model.to_parts();
        self.u64(info.segment.to_bits()).u64(info.bytes).u8(kind).u32(parameter).u32(info.history_len);
        self.identity(info.permissions.owner).u16(info.permissions.mode).u8(info.copies | info.storage.code() << 7);
        self.u16(encode_row_bytes(info.row_bytes))
    }
    /// Writes a request as its ring entry, without the ring's sequence.
    pub(crate) fn request(&mut self, request: &Request) -> &mut Self {
        let [first, rest @ ..] = request.encode();
        rest.iter().fold(self.u32((first >> 32) as u32), |out, &word| out.u64(word))
    }
    pub(crate) fn model(&mut self, model: Option<Model>) -> &mut Self {
        let (kind, parameter) = model.map_or((0, 0), Model::to_parts);
        self.u8(kind).u32(parameter)
    }
}

/// Remaining input.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Failure::Malformed)?;
        self.0 = rest;
        Ok(*head)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, Failure> {
        self.array::<1>().map(|[byte]| byte)
    }
    pub(crate) fn u16(&mut self) -> Result<u16, Failure> {
        self.array().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Result<u32, Failure> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Result<u64, Failure> {
        self.array().map(u64::from_le_bytes)
    }
    pub(crate) fn segment(&mut self) -> Result<SegmentId, Failure> {
        self.u64().map(SegmentId::from_bits)
    }
    /// Takes the version of stored bytes. A state word has 63 bits for it, so that no put after it overflows.
    pub(crate) fn stored_version(&mut self) -> Result<Version, Failure> {
        let version = Version(self.u64()?);
        if version.0 <= u64::MAX >> 1 { Ok(version) } else { Err(Failure::Malformed) }
    }
    pub(crate) fn client(&mut self) -> Result<ClientId, Failure> {
        Ok(ClientId { index: self.u32()?, generation: self.u32()? })
    }
    pub(crate) fn identity(&mut self) -> Result<Principal, Failure> {
        Ok(Principal { uid: self.u32()?, gid: self.u32()? })
    }
    pub(crate) fn window(&mut self) -> Result<RemoteWindow, Failure> {
        Ok(RemoteWindow { key: self.u32()?, base: self.u64()?, bytes: self.u64()? })
    }
    pub(crate) fn name(&mut self) -> Result<Name, Failure> {
        Name::from_bytes(std::mem::take(&mut self.0))
    }
    pub(crate) fn option(&mut self) -> Result<Option<u64>, Failure> {
        let (there, value) = (self.u8()?, self.u64()?);
        match there {
            0 => Ok(None),
            1 => Ok(Some(value)),
            _ => Err(Failure::Malformed),
        }
    }
    pub(crate) fn request(&mut self) -> Result<Request, Failure> {
        let mut entry = [u64::from(self.u32()?) << 32, 0, 0, 0, 0, 0, 0, 0];
        for word in &mut entry[1..] {
            *word = self.u64()?;
        }
        Request::decode(&entry).map_err(|refused| refused.failure)
    }
    pub(crate) fn info(&mut self) -> Result<SegmentInfo, Failure> {
        let (segment, bytes) = (self.segment()?, self.u64()?);
        let model = Model::from_parts(self.u8()?, self.u32()?)?;
        let history_len = self.u32()?;
        let (owner, mode, kept) = (self.identity()?, self.u16()?, self.u8()?);
        let (copies, storage) = (kept & 0x7f, Storage::from_code(kept >> 7)?);
        if history_len > HISTORY_MAX || mode & !0o777 != 0 || copies == 0 || copies > COPIES_MAX_OF_SEGMENT {
            return Err(Failure::Malformed);
        }
        let row_bytes = decode_row_bytes(self.u16()?, bytes)?;
        if row_bytes > 0 && history_len > 0 {
            return Err(Failure::Malformed);
        }
        Ok(SegmentInfo {
            segment,
            bytes,
            model,
            permissions: Permissions { owner, mode },
            history_len,
            copies,
            storage,
            row_bytes,
        })
    }
    pub(crate) fn permissions(&mut self) -> Result<Permissions, Failure> {
        let (owner, mode) = (self.identity()?, self.u16()?);
        if mode & !0o777 == 0 { Ok(Permissions { owner, mode }) } else { Err(Failure::Malformed) }
    }
    pub(crate) fn reply(&mut self) -> Result<OfferReply, Failure> {
        OfferReply::from_code(self.u8()?).ok_or(Failure::Malformed)
    }
    pub(crate) fn ack(&mut self) -> Result<ReplicaAck, Failure> {
        Ok(match self.u8()? {
            1 => ReplicaAck::Piece,
            2 => ReplicaAck::Put,
            3 => ReplicaAck::NoRoom,
            4 => ReplicaAck::Busy,
            _ => return Err(Failure::Malformed),
        })
    }
    pub(crate) fn model(&mut self) -> Result<Option<Model>, Failure> {
        match (self.u8()?, self.u32()?) {
            (0, 0) => Ok(None),
            (kind, parameter) => Model::from_parts(kind, parameter).map(Some),
        }
    }
    pub(crate) fn conditions(&mut self) -> Result<PutConditions, Failure> {
        let (version, token) = (self.option()?.map(Version), self.option()?.map(LockToken));
        Ok(PutConditions { version, token, requested_model: self.model()?, entry: None })
    }
    pub(crate) fn ranges(&mut self) -> Result<u8, Failure> {
        match self.u8()? {
            count if usize::from(count) <= RANGES_MAX => Ok(count),
            _ => Err(Failure::Malformed),
        }
    }
}
