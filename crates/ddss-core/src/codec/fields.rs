//! Little-endian encoding of message fields, each checked on decoding. Each type has one encoding.

use crate::failure::{Failure, Outcome};
use crate::limits::{COPIES_MAX_OF_SEGMENT, HISTORY_MAX, MESSAGE_BYTES_MAX};
use crate::model::coherence::Model;
use crate::model::segment::{Name, Permissions, Principal};
use crate::model::spec::{Spec, Storage, decode_row_bytes, encode_row_bytes};
use crate::peer::message::{RemoteWindow, SegmentInfo};
use crate::peer::replica_reply::{OfferReply, ReplicaAck};
use crate::request::operation::{LockToken, Part, PutConditions, UploadId};
use crate::request::request::Request;
use crate::{ClientId, SegmentId, Timestamp, Version};
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
    fn option(&mut self, value: Option<u64>) -> &mut Self {
        self.u8(value.is_some().into()).u64(value.unwrap_or(0))
    }
    pub(crate) fn identity(&mut self, principal: Principal) -> &mut Self {
        self.u32(principal.uid).u32(principal.gid)
    }
    pub(crate) fn info(&mut self, info: &SegmentInfo) -> &mut Self {
        let (kind, parameter) = info.model.to_parts();
        self.u64(info.segment.to_bits()).u64(info.bytes).u8(kind).u32(parameter).u32(info.history_len);
        self.identity(info.permissions.owner).u16(info.permissions.mode).u8(info.copies | info.storage.code() << 7);
        self.u16(encode_row_bytes(info.row_bytes))
    }
    fn model(&mut self, model: Option<Model>) -> &mut Self {
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
    pub(crate) fn identity(&mut self) -> Result<Principal, Failure> {
        Ok(Principal { uid: self.u32()?, gid: self.u32()? })
    }
    fn option(&mut self) -> Result<Option<u64>, Failure> {
        let (there, value) = (self.u8()?, self.u64()?);
        match there {
            0 => Ok(None),
            1 => Ok(Some(value)),
            _ => Err(Failure::Malformed),
        }
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
    fn model(&mut self) -> Result<Option<Model>, Failure> {
        match (self.u8()?, self.u32()?) {
            (0, 0) => Ok(None),
            (kind, parameter) => Model::from_parts(kind, parameter).map(Some),
        }
    }
}

/// Type of a field of messages, with its one encoding.
pub(crate) trait Field: Sized {
    fn put<const N: usize>(self, out: &mut Writer<N>);
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure>;
}

/// Fields that are a value of another type, in two directions that always succeed.
macro_rules! plain_fields {
    ($($field:ty as $plain:ident: |$value:pat_param| $put:expr, $take:expr;)*) => {
        $(impl Field for $field {
            fn put<const N: usize>(self, out: &mut Writer<N>) {
                let $value = self;
                out.$plain($put);
            }
            fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
                input.$plain().map($take)
            }
        })*
    };
}

plain_fields! {
    u8 as u8: |value| value, |value| value;
    u32 as u32: |value| value, |value| value;
    u64 as u64: |value| value, |value| value;
    bool as u8: |value| value.into(), |value| value != 0;
    SegmentId as u64: |value| value.to_bits(), Self::from_bits;
    Version as u64: |Self(value)| value, Self;
    Timestamp as u64: |Self(value)| value, Self;
    LockToken as u64: |Self(value)| value, Self;
    UploadId as u32: |Self(value)| value, Self;
    Principal as identity: |value| value, |value| value;
}

impl Field for SegmentInfo {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.info(&self);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        input.info()
    }
}

impl Field for ClientId {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.u32(self.index).u32(self.generation);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Ok(Self { index: input.u32()?, generation: input.u32()? })
    }
}

impl Field for RemoteWindow {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.u32(self.key).u64(self.base).u64(self.bytes);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Ok(Self { key: input.u32()?, base: input.u64()?, bytes: input.u64()? })
    }
}

/// A request is its ring entry, without the ring's sequence.
impl Field for Request {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        let [first, rest @ ..] = self.encode();
        rest.iter().fold(out.u32((first >> 32) as u32), |out, &word| out.u64(word));
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        let mut entry = [u64::from(input.u32()?) << 32, 0, 0, 0, 0, 0, 0, 0];
        for word in &mut entry[1..] {
            *word = input.u64()?;
        }
        Self::decode(&entry).map_err(|refused| refused.failure)
    }
}

impl Field for Part {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.u32(self.upload.0).u32(self.at).u32(self.total);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Ok(Self { upload: UploadId(input.u32()?), at: input.u32()?, total: input.u32()? })
    }
}

/// Conditions of the put of an upload, which changes no entry.
impl Field for PutConditions {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.option(self.version.map(|version| version.0)).option(self.token.map(|token| token.0));
        out.model(self.requested_model);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        let (version, token) = (input.option()?.map(Version), input.option()?.map(LockToken));
        Ok(Self { version, token, requested_model: input.model()?, entry: None })
    }
}

impl Field for Outcome {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.bytes(&self.to_bytes());
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        input.array().map(Self::from_bytes)
    }
}

impl Field for Spec {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.bytes(&self.encode());
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Self::decode(&input.array()?)
    }
}

impl Field for Permissions {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.identity(self.owner).u16(self.mode);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        let (owner, mode) = (input.identity()?, input.u16()?);
        if mode & !0o777 == 0 { Ok(Self { owner, mode }) } else { Err(Failure::Malformed) }
    }
}

/// A name is the rest of its message.
impl Field for Name {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.bytes(self.as_str().as_bytes());
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Self::from_bytes(std::mem::take(&mut input.0))
    }
}

impl Field for OfferReply {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.u8(self.code());
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Self::from_code(input.u8()?).ok_or(Failure::Malformed)
    }
}

impl Field for ReplicaAck {
    fn put<const N: usize>(self, out: &mut Writer<N>) {
        out.u8(self as u8);
    }
    fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
        Ok(match input.u8()? {
            1 => Self::Piece,
            2 => Self::Put,
            3 => Self::NoRoom,
            4 => Self::Busy,
            _ => return Err(Failure::Malformed),
        })
    }
}
