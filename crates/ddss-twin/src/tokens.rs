//! Predicates on single tokens.

use proc_macro::{Group, TokenStream, TokenTree};

pub(crate) fn is_word(tree: Option<&TokenTree>, word: &str) -> bool {
    matches!(tree, Some(TokenTree::Ident(found)) if found.to_string() == word)
}

pub(crate) fn is_mark(tree: Option<&TokenTree>, mark: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(found)) if found.as_char() == mark)
}

/// Returns a group with another content and the same place in the source.
pub(crate) fn regrouped(group: &Group, content: TokenStream) -> TokenTree {
    let mut new = Group::new(group.delimiter(), content);
    new.set_span(group.span());
    TokenTree::Group(new)
}
