//! End of a message that the application has taken.

/// End of a message in the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageEnd {
    Processed,
    /// Another consumer gets it, and this one has not failed.
    GivenBack,
    /// Another consumer gets it, and this one has failed.
    Rejected,
}
