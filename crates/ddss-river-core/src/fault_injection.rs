//! Bugs that tests switch on and have to find. Without the feature `planted` there are none, and `planted!` is a
//! constant `false`.

/// One bug.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A refused recall frees the slot, and so does the acknowledgement.
    CreditUsedTwice,
    /// A consumer gives a message back that it has begun, and processes it too.
    RecalledProcessed,
    /// A producer closes the queue when all messages are sent.
    EndBeforeAcknowledgement,
    /// A redelivered message is not flagged.
    UnflaggedRedelivery,
    /// A producer forgets the unacknowledged messages of a lost consumer.
    ForgottenByLoss,
    /// A message never fails, however many consumers it ends.
    EndlessRedelivery,
    /// A reader accepts a chunk of another generation than that of the catalogue.
    ForeignGeneration,
    /// A file server serves its readers in the order of their requests.
    LagIgnored,
    /// A reader forgets the requests at a lost mirror.
    ChunksForgotten,
    /// A worker finishes its unit although another worker has it.
    FencedFinish,
    /// A claim expires although its worker renews it.
    RenewalIgnored,
    /// A claim expires while the table is away, so that its worker cannot renew it.
    OutageCounted,
    /// A consumer forgets the messages of a dead producer that it has not taken.
    DeadProducerForgotten,
}

/// Returns true if the engine has a bug.
macro_rules! planted {
    ($engine:expr, $bug:ident) => {{
        #[cfg(feature = "planted")]
        let has = $engine.bug == Some(crate::fault_injection::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let has = false;
        has
    }};
}

pub(crate) use planted;
