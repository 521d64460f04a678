//! The engine of branchmem: which derived memories are visible at an anchor.
//!
//! A fold over the events of a log, disposable and deterministic. It knows
//! neither Python, nor files, nor clocks, nor threads of its own.
//!
//! | module | question it answers |
//! | --- | --- |
//! | [`error`] | why were bytes refused? |
//! | [`ids`] | which number, type and position has an id? |
//! | [`msgpack`] | what is the next value of a record? |
//! | [`event`] | what do the bytes of a skeleton block say? |
//! | [`encode`] | which bytes say that? |
//! | [`chains`] | is one message an ancestor of another, without relabelling? |
//! | [`topology`] | where does a message hang, and which are attached? |
//! | [`reason`] | the reasons as bits, and counting them |
//! | [`spans`] | does a span cover a position, one or many at once? |
//! | [`tour`] | is one message an ancestor of another, in one comparison, for what was there at the last rebuild? |
//! | [`circles`] | which memories derive from themselves? |
//! | [`shape`] | where do the sources of a memory lie, in 32 bits? |
//! | [`provenance`] | what does a memory rest on, reduced to what can fail? |
//! | [`facts`] | what may a question read? |
//! | [`stand`] | where does a view stand, and what is wrong with a source there? |
//! | [`visible`] | a set of memories, listed or as bits |
//! | [`runs`] | what hangs on a chain, down to a depth? |
//! | [`view`] | which memories are visible there, as a set? |
//! | [`explain`] | which ids are at fault? |
//! | [`engine`] | all of it together: fold, then ask |
//! | [`answers`] | what is visible, one by one, in bulk and pairwise? |
//! | [`lineage`] | paths, leaves and siblings, for people |
//!
//! Data flows down this table. Nothing here recurses, so the depth of a chat
//! or of a derivation costs memory, never the stack.

pub mod answers;
pub mod chains;
pub mod circles;
pub mod encode;
pub mod engine;
pub mod error;
pub mod event;
pub mod explain;
pub mod facts;
pub mod ids;
pub mod lineage;
pub mod msgpack;
pub mod provenance;
pub mod reason;
pub mod runs;
pub mod shape;
pub mod spans;
pub mod stand;
pub mod topology;
pub mod tour;
#[cfg(test)]
mod twins;
pub mod view;
pub mod visible;

/// Hash tables keyed by numbers and ids: seeded by the caller or not at all, so that no run differs.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;
pub(crate) type Set<K> = hashbrown::HashSet<K, foldhash::fast::FixedState>;

pub use engine::{Engine, Plan};
pub use error::BlockError;
pub use explain::Explanation;
pub use ids::{Mem, Node, Number};
pub use reason::Reasons;
pub use stand::{Ambiguous, Stand};
pub use visible::{Answer, Visible};
