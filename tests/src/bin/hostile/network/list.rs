//! Every attack from the network, by name.

use super::road::Target;
use super::{control, doors, lies, mistakes, nonsense, places, recorded};
use crate::liar::Found;

/// One attack from the network.
pub(crate) struct Sortie {
    /// Which file, and which function in it.
    pub(crate) name: &'static str,
    /// What it tries.
    pub(crate) tries: &'static str,
    pub(crate) run: fn(&Target) -> Found,
}

macro_rules! sorties {
    ($(#[$doc:meta])* $list:ident: $($module:ident :: $name:ident: $tries:literal;)*) => {
        $(#[$doc])*
        pub(crate) const $list: &[Sortie] = &[$(Sortie {
            name: concat!(stringify!($module), "::", stringify!($name)), tries: $tries, run: $module::$name,
        }),*];
    };
}

sorties! {
    /// Without the key.
    STRANGERS:
    doors::silent_crowd: "nobody else gets to the door";
    doors::keeps_every_place: "the same, for as long as it likes";
    doors::connects_and_goes: "the same, faster";
    doors::connects_and_resets: "a connection that is gone is kept";
    doors::speaks_something_else: "a port that answers everybody";
    doors::request_by_the_byte: "the door is held open";
    doors::half_a_request: "the same";
    doors::request_and_reset: "an end in the middle of a start frame";
    doors::private_data_beyond_the_limit: "a length that nobody checked";
    doors::private_data_of_nothing: "a hello that is not there";
    doors::unknown_revisions: "an older handshake that checks less";
    doors::flags_of_every_kind: "terms under which less is checked";
    doors::limits_cut_short: "a read beyond the private data";
    doors::reply_instead_of_a_request: "the other side's part of the handshake";
    doors::another_key: "a key that is not checked";
    doors::another_key_without_end: "the progress thread does nothing but arithmetic";
    doors::another_release: "a protocol that is not checked";
    doors::hellos_of_rubbish: "lengths and tags";
    doors::hellos_of_one_kind_of_byte: "a share that makes a key that everybody knows";
    doors::frames_before_any_request: "memory is read before anybody asked who it is";
    doors::frames_behind_a_refused_request: "memory is read before the no arrives";
    doors::rubbish_behind_a_request: "the progress thread throws bytes away without end";
    doors::control_words_on_the_data_port: "one plane's handshake on another";
    doors::half_closes_and_waits: "a connection that is half gone and stays";
    doors::never_reads_what_it_is_told: "the daemon's memory fills with what it says";
    recorded::said_again: "an old packet takes a node's place";
    recorded::said_again_without_end: "the progress thread does nothing but costly arithmetic";
    recorded::altered_in_each_byte: "a byte that nothing proves";
    recorded::cut_short_or_too_long: "a length that nothing proves";
    recorded::of_the_control_plane: "one plane's handshake on another";
    recorded::of_another_plane: "the same";
    recorded::with_terms_that_cannot_be: "a connection about which the two sides disagree";
    recorded::then_reads: "memory is read by one who proved nothing";
    recorded::then_writes: "memory is written by one who proved nothing";
    recorded::then_changes_words: "words are changed by one who proved nothing";
    recorded::then_says_rubbish: "what does not open is listened to";
    recorded::then_a_message_without_end: "a message that is gathered without end";
    recorded::then_a_wrong_checksum: "a frame that is taken all the same";
    recorded::then_wrong_queues: "a queue that is not there";
    recorded::then_frames_of_nothing: "work without end for no bytes";
    recorded::then_half_a_frame: "a place that is kept by waiting";
    recorded::then_resets: "an end in the middle of the meeting";
    places::answers_rubbish: "whoever answers is believed";
    places::answers_a_hello_of_rubbish: "the same, in shape";
    places::sends_its_own_words_back: "a node that meets itself";
    places::answers_with_another_key: "a key that is not checked by who calls";
    places::answers_more_than_fits: "an answer without end";
    places::answers_half_and_waits: "a node that waits for ever";
    places::turns_away_with_a_lie: "a reason that paints in the log";
    control::silent_crowd: "the members of the cluster find no place";
    control::connects_and_goes: "the same, faster";
    control::connects_and_resets: "a stream that is gone is kept";
    control::speaks_something_else: "a port that answers everybody";
    control::half_a_hello: "the door is held open";
    control::hello_by_the_byte: "the same";
    control::another_key: "a key that is not checked";
    control::hello_of_the_data_plane: "one plane's handshake on another";
    control::said_again_then_rubbish: "what does not open is listened to";
    control::said_again_then_frames_of_nothing: "work without end for no bytes";
    control::said_again_by_a_silent_crowd: "places that are kept by who proved nothing";
    control::said_again_then_half_a_frame: "the same, waiting for more";
    control::metrics_of_rubbish: "a file that is none of its pages";
    control::metrics_by_the_byte: "monitors find no place";
    control::metrics_without_end: "the same, faster";
}

sorties! {
    /// With the key.
    MEMBERS:
    lies::reads_with_a_guessed_key: "memory that was not opened to it";
    lies::reads_beyond_its_window: "what lies behind a segment";
    lies::reads_far_from_its_window: "the same";
    lies::reads_where_addresses_wrap: "a sum that is inside again";
    lies::reads_four_gigabytes: "an answer without end";
    lies::reads_what_it_may_only_write: "what it has put, or another one did";
    lies::reads_a_segment_that_it_released: "memory that is somebody else's by now";
    lies::writes_what_it_may_only_read: "a put that nobody checked";
    lies::writes_beyond_its_staging_memory: "the same";
    lies::changes_words_of_a_window: "the same, by an atomic";
    lies::uses_a_key_of_an_earlier_connection: "a key outlives what it was for";
    lies::puts_from_beyond_its_staging_memory: "memory that is not its own is put";
    lies::puts_bytes_that_it_did_not_send: "the same";
    lies::welcomes_to_a_window_that_is_nowhere: "the node writes where nothing is";
    lies::tells_of_segments_that_cannot_be: "the node believes what it is told of others' segments";
    lies::asks_beyond_a_segment: "a sum that is inside again";
    lies::uses_somebody_elses_lock: "a lock is used, or let go, by another one";
    lies::asks_for_somebody_who_may_not: "permissions hold for clients only";
    lies::names_segments_that_are_not_here: "an id names something else";
    lies::answers_what_nobody_asked: "somebody else's call ends";
    lies::tells_of_a_far_future: "all clocks run ahead for ever";
    lies::waits_in_masses: "a line without an end";
    lies::fills_the_memory: "memory without an end";
    lies::asks_without_end: "nobody else is looked at any more";
    lies::asks_and_never_listens: "the daemon's memory fills with answers";
    lies::reads_without_end: "nobody else is looked at any more";
    lies::meets_without_end: "the progress thread does nothing but costly arithmetic";
    mistakes::words_in_the_open: "a word that is not sealed";
    mistakes::words_said_twice: "a word that was said once";
    mistakes::words_of_another_connection: "the same";
    mistakes::words_in_another_order: "an order that nobody checked";
    mistakes::words_of_nothing: "a kind that is not there";
    mistakes::words_of_rubbish: "a mix that nobody thought of";
    mistakes::welcomes_twice: "a staging window that moves";
    mistakes::says_something_before_its_welcome: "a place without a meeting";
    mistakes::wrong_checksums: "a frame that is taken all the same";
    mistakes::wrong_numbers_of_messages: "a message that was not its turn";
    mistakes::wrong_queues: "a queue that is not there";
    mistakes::unknown_opcodes: "an operation that nobody checked";
    mistakes::answers_to_reads_that_nobody_made: "memory is written by an answer";
    mistakes::frames_of_nothing: "work without end for no bytes";
    mistakes::messages_longer_than_any: "more is copied than there is room for";
    mistakes::more_reads_than_were_agreed_on: "a queue without an end";
    mistakes::half_a_frame_and_an_end: "half of a frame is taken for all";
    mistakes::its_own_old_first_message: "an old packet takes a living node's place";
    nonsense::words_that_are_none: "a directory of nonsense";
    nonsense::words_of_rubbish: "the same";
    nonsense::a_word_without_end: "the daemon's memory fills with a word";
    nonsense::parts_of_nothing_without_end: "work without end for no bytes";
    nonsense::words_that_do_not_open: "what does not open is listened to";
    nonsense::names_that_cannot_be: "names that nobody can use";
    nonsense::nodes_that_cannot_be: "nodes that nobody can be";
    nonsense::questions_that_nobody_listens_to: "the daemon's memory fills with answers";
}
