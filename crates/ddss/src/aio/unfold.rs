//! A stream whose items come one by one from an asynchronous function.

use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Makes a stream of a state and a step, which returns an item and the state after it; `None` at the end. A step that was
/// begun goes on with the next poll, so a dropped `next` loses no item.
pub(super) fn unfold<S, T, F, N>(state: S, step: F) -> Unfold<S, F, N>
where
    F: FnMut(S) -> N,
    N: Future<Output = Option<(T, S)>>,
{
    Unfold { state: Some(state), step, running: None }
}

pub(super) struct Unfold<S, F, N> {
    state: Option<S>,
    step: F,
    running: Option<Pin<Box<N>>>,
}

impl<S: Unpin, T, F, N> Stream for Unfold<S, F, N>
where
    F: FnMut(S) -> N + Unpin,
    N: Future<Output = Option<(T, S)>>,
{
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Self { state, step, running } = self.get_mut();
        if running.is_none() {
            *running = state.take().map(|state| Box::pin(step(state)));
        }
        let Some(future) = running else { return Poll::Ready(None) };
        let ended = ready!(future.as_mut().poll(context));
        *running = None;
        Poll::Ready(ended.map(|(item, after)| {
            *state = Some(after);
            item
        }))
    }
}
