//! One file in both forms.
#![allow(unreachable_pub, reason = "the file is written as one of a public interface")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[path = "."]
mod blocking {
    use ddss_twin::{keep as only_blocking, skip as only_aio, strip as twin};
    #[path = "form/mod.rs"]
    pub mod form;
}

#[path = "."]
#[allow(clippy::duplicate_mod, reason = "this is what the crate is for")]
mod aio {
    use ddss_twin::{keep as only_aio, link as twin, skip as only_blocking};
    #[path = "form/mod.rs"]
    pub mod form;
}

// If this failed, a blocking call would return a future that nobody polls.
#[test]
fn one_source_has_a_blocking_and_an_asynchronous_form() {
    let counter = blocking::form::Counter::default();
    let added: u64 = counter.add_by_each_kind_of_future();
    assert_eq!((blocking::form::FORM, added, counter.add(1)), ("blocking", 4, 5));
    assert!(counter.quotes().contains("async") && counter.quotes().contains(".await"));

    let counter = aio::form::Counter::default();
    let mut adding = pin!(counter.add_by_each_kind_of_future());
    let added = adding.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!((aio::form::FORM, added), ("aio", Poll::Ready(4)));
    assert!(counter.quotes().contains("async"));
}
