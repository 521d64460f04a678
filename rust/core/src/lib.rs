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
//! | [`skeleton`] | what does an event say that decides visibility? |
//! | [`event`] | what do the bytes of a skeleton block say? |
//! | [`body`] | are these the bytes of a body? |
//! | [`records`] | which events travel in these bytes? |
//! | [`encode`] | which bytes say that? |
//! | [`chains`] | is one message an ancestor of another, without relabelling? |
//! | [`topology`] | where does a message hang, and which are attached? |
//! | [`reason`] | the reasons as bits, and counting them |
//! | [`spans`] | does a span cover a position, one or many at once? |
//! | [`tour`] | is one message an ancestor of another, in one comparison, for what was there at the last rebuild? |
//! | [`bits`] | a set of memories, one bit each |
//! | [`marked`] | some memories as bits, for a moment |
//! | [`words`] | which memories have a kind or key? |
//! | [`circles`] | which memories derive from themselves? |
//! | [`waiting`] | what do memories wait for before they are settled? |
//! | [`links`] | is all there that a memory derives from or adopts? |
//! | [`shape`] | where do the sources of a memory lie, in 32 bits? |
//! | [`provenance`] | what does a memory rest on, reduced to what can fail? |
//! | [`dependents`] | which memories refer to an id? |
//! | [`retraction`] | what do retractions and restorations name, and at which place are they judged? |
//! | [`cover`] | where do covers begin and meet, down from what retractions name? |
//! | [`covered`] | from where on is a memory covered, given that its sources lie on the path? |
//! | [`erasure`] | which content is gone? |
//! | [`supersession`] | which memories are replaced, given those that are live? |
//! | [`changes`] | all of these together, as events come |
//! | [`facts`] | what may a question read? |
//! | [`stand`] | where does a view stand, and what is wrong with a source there? |
//! | [`seen`] | which retractions are in effect there, and which memories do they cover? |
//! | [`judged`] | from where on is a memory covered, found beforehand |
//! | [`visible`] | a set of memories, listed or as bits |
//! | [`runs`] | what hangs on a chain, down to a depth? |
//! | [`view`] | which memories are visible there, as a set? |
//! | [`explain`] | which ids are at fault? |
//! | [`engine`] | all of it together: fold, then ask |
//! | [`withheld`] | what is left after erasure, retraction and supersession? |
//! | [`answers`] | what is visible, one by one, in bulk and pairwise? |
//! | [`lineage`] | paths, leaves and siblings, for people |
//!
//! Data flows down this table. Nothing here recurses, so the depth of a chat
//! or of a derivation costs memory, never the stack.

pub mod answers;
pub mod bits;
pub mod body;
pub mod chains;
pub mod changes;
pub mod circles;
pub mod cover;
pub mod covered;
pub mod dependents;
pub mod encode;
pub mod engine;
pub mod erasure;
pub mod error;
pub mod event;
pub mod explain;
pub mod facts;
pub mod ids;
pub mod judged;
pub mod lineage;
pub mod links;
pub mod marked;
pub mod msgpack;
pub mod provenance;
pub mod reason;
pub mod records;
pub mod retraction;
pub mod runs;
pub mod seen;
pub mod shape;
pub mod skeleton;
pub mod spans;
pub mod stand;
pub mod supersession;
pub mod topology;
pub mod tour;
#[cfg(test)]
mod twins;
pub mod view;
pub mod visible;
pub mod waiting;
pub mod withheld;
pub mod words;

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
