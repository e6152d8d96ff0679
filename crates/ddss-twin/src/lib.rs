//! Attributes for modules that are compiled twice: once with blocking calls, once with asynchronous ones.
//!
//! Both modules read the same files of ordinary `async` source, so rustfmt, search and editors see all of it. Each module
//! imports the attributes under common names:
//!
//! | name in the files | blocking module | asynchronous module |
//! | --- | --- | --- |
//! | `twin`: an item of both modules | [`macro@strip`] | [`macro@link`] |
//! | `only_blocking` | [`macro@keep`] | [`macro@skip`] |
//! | `only_aio` | [`macro@skip`] | [`macro@keep`] |
//!
//! ```
//! struct Numbers;
//!
//! #[ddss_twin::strip]
//! impl Numbers {
//!     async fn one(&self) -> u64 {
//!         1
//!     }
//!
//!     async fn two(&self) -> u64 {
//!         self.one().await + self.one().await
//!     }
//! }
//!
//! assert_eq!(Numbers.two(), 2, "no future is built");
//! ```
#![forbid(unsafe_code)]

mod link;
mod strip;
mod tokens;

use proc_macro::TokenStream;

/// Removes each `async` and each `.await`: the calls block, and no future is built.
#[proc_macro_attribute]
pub fn strip(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    strip::without_async(item)
}

/// Leaves the code as it is. Of each public item's documentation the first paragraph stays, and a link to the blocking
/// item replaces the rest, so that its examples run once.
#[proc_macro_attribute]
pub fn link(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    link::with_links(item)
}

/// Keeps the item.
#[proc_macro_attribute]
pub fn keep(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Removes the item.
#[proc_macro_attribute]
pub fn skip(_arguments: TokenStream, _item: TokenStream) -> TokenStream {
    TokenStream::new()
}
