//! The blocking form: the tokens without `async` and `.await`.

use crate::tokens::{is_mark, is_word, regrouped};
use proc_macro::{TokenStream, TokenTree};

pub(crate) fn without_async(tokens: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = TokenStream::new();
    let mut at = 0;
    while let Some(tree) = tokens.get(at) {
        at += 1;
        match tree {
            TokenTree::Group(group) => kept.extend([regrouped(group, without_async(group.stream()))]),
            _ if is_word(Some(tree), "async") => {
                let is_block = matches!(tokens.get(at + 1), Some(TokenTree::Group(_)));
                at += usize::from(is_word(tokens.get(at), "move") && is_block);
            }
            _ if is_mark(Some(tree), '.') && is_word(tokens.get(at), "await") => at += 1,
            other => kept.extend([other.clone()]),
        }
    }
    kept
}
