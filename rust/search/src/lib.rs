//! Search that ranks only what is visible.
//!
//! Everything here is in memory, by the ordinals of the engine, and can be made again from the log. A search is
//! given what a view shows; what is hidden changes neither a score nor an order.
//!
//! | module | question it answers |
//! | --- | --- |
//! | [`tokens`] | what are the tokens of a text? |
//! | [`content`] | what does the body of a memory say? |
//! | [`texts`] | which memories say the same? |
//! | [`shown`] | which memories does a search rank? |
//! | [`best`] | which are the best of many, each text once? |
//! | [`lexical`] | which memories have a token, how often, and what is that worth? |
//! | [`conditions`] | does a memory fit what was asked for besides words? |
//! | [`fields`] | when was it made and last used, and what is left of its importance? |
//! | [`vectors`] | which vectors are nearest? |
//! | [`index`] | all that is kept about the memories of a log |
//! | [`ranking`] | which texts of those shown fit a query best? |
//!
//! Data flows down this table.

#![expect(clippy::cast_precision_loss, reason = "counts and times in microseconds lie far below 2^53")]

pub mod best;
pub mod conditions;
pub mod content;
pub mod fields;
pub mod index;
pub mod lexical;
pub mod ranking;
pub mod shown;
pub mod texts;
pub mod tokens;
pub mod vectors;

/// Hash tables, seeded by the caller where others choose the keys.
pub type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;
pub(crate) type Set<K> = hashbrown::HashSet<K, foldhash::fast::FixedState>;
