//! Verification of hellos on the fabric's own thread, where the fabric has one.

use ddss_auth::{Answer, Context, Identity, Key, respond};
use ddss_verbs::{Admission, AdmissionFilter};
use std::net::SocketAddr;

/// Admission filter that knows the key of a group. The cryptography of a hello takes as long as many messages, and anyone
/// can send one: on the polling thread it would delay the members.
pub struct Verifier {
    pub(super) key: Key,
    pub(super) context: Context,
    pub(super) ours: Identity,
}

impl Verifier {
    pub(super) fn verify(&self, hello: &[u8]) -> Result<Answer, String> {
        respond(&self.key, &self.context, &self.ours, hello).map_err(|error| error.to_string())
    }
}

impl AdmissionFilter for Verifier {
    fn evaluate(&mut self, _address: SocketAddr, hello: &[u8]) -> Admission {
        match self.verify(hello) {
            Ok(answer) => Admission::Admit(Box::new(answer)),
            Err(reason) => Admission::Reject(reason),
        }
    }
}
