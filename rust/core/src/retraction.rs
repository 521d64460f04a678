//! What do retractions and restorations name, and at which place are they judged?

use crate::Map;
use crate::ids::{Ids, Node, Number};
use crate::provenance::Memories;
use crate::skeleton::{Block, Scope, Skeleton};
use crate::topology::Forest;

/// A retraction; what it covers is found by [`crate::cover`].
pub struct Retraction {
    /// Its id.
    pub number: Number,
    /// The message at which it stands.
    pub at: Number,
    /// Where it is in effect.
    pub scope: Scope,
    /// The messages, memories and keys that it names.
    pub sources: Box<[Number]>,
    /// See `sources`.
    pub memories: Box<[Number]>,
    /// See `sources`; words of the memories.
    pub keys: Box<[u32]>,
    /// Whether it covers what is stated afresh.
    pub standing: bool,
    /// The restorations that lift it.
    pub restorations: Vec<u32>,
}

/// A restoration.
pub struct Restoration {
    /// Its id.
    pub number: Number,
    /// The message at which it stands.
    pub at: Number,
    /// Where it is in effect.
    pub scope: Scope,
    /// What it lifts.
    pub retraction: Number,
}

/// All retractions and restorations, in the order of the log.
#[derive(Default)]
pub struct Retractions {
    all: Vec<Retraction>,
    restorations: Vec<Restoration>,
    by_number: Map<u32, u32>,
    /// Restorations by the id of a retraction that is not here.
    waiting: Map<u32, Vec<u32>>,
}

impl Retractions {
    /// The retractions.
    #[must_use]
    pub fn all(&self) -> &[Retraction] {
        &self.all
    }

    /// The retraction with this id.
    #[must_use]
    pub fn find(&self, number: Number) -> Option<&Retraction> {
        self.by_number.get(&number.0).map(|&at| &self.all[at as usize])
    }

    /// The restorations.
    #[must_use]
    pub fn restorations(&self) -> &[Restoration] {
        &self.restorations
    }

    /// Take in a retraction and return its place. O(what it names).
    pub fn push(&mut self, skeleton: &Skeleton<'_>, block: &Block<'_>, memories: &mut Memories) -> u32 {
        let more = block.more(skeleton).cloned().unwrap_or_default();
        let place = self.all.len() as u32;
        self.all.push(Retraction {
            number: skeleton.id,
            at: more.at.unwrap_or(skeleton.id),
            scope: more.scope,
            sources: block.refs[skeleton.sources.clone()].into(),
            memories: block.refs[more.named].into(),
            keys: more.keys.map(|key| memories.word(key)).collect(),
            standing: more.standing,
            restorations: self.waiting.remove(&skeleton.id.0).unwrap_or_default(),
        });
        self.by_number.insert(skeleton.id.0, place);
        place
    }

    /// Take in a restoration, and return the place of the retraction that it lifts. O(1).
    pub fn push_restoration(&mut self, skeleton: &Skeleton<'_>, block: &Block<'_>) -> Option<u32> {
        let more = block.more(skeleton).cloned().unwrap_or_default();
        let place = self.restorations.len() as u32;
        let retraction = more.retraction.unwrap_or(skeleton.id);
        self.restorations.push(Restoration {
            number: skeleton.id,
            at: more.at.unwrap_or(skeleton.id),
            scope: more.scope,
            retraction,
        });
        let lifted = self.by_number.get(&retraction.0).copied();
        match lifted {
            Some(at) => self.all[at as usize].restorations.push(place),
            None => self.waiting.entry(retraction.0).or_default().push(place),
        }
        lifted
    }
}

/// The place by which a retraction is judged; `None` where it is in effect in every view, be it that its scope asks
/// for no place or that its place is not known.
#[must_use]
pub fn judged(retraction: &Retraction, ids: &Ids, forest: &Forest) -> Option<Node> {
    if retraction.scope == Scope::Everywhere {
        return None;
    }
    let node = placed(retraction.at, ids, forest)?;
    let legacy_tree = retraction.scope == Scope::Tree && forest.is_legacy(forest.top(node));
    (!legacy_tree).then_some(node)
}

/// A message by which a place is known: attached, and no legacy message.
#[must_use]
pub fn placed(at: Number, ids: &Ids, forest: &Forest) -> Option<Node> {
    ids.message(at).filter(|&node| forest.is_attached(node) && !forest.is_legacy(node))
}

impl Retraction {
    /// Whether its place is not known, though its scope asks for one.
    #[must_use]
    pub fn is_unplaced(&self, ids: &Ids, forest: &Forest) -> bool {
        self.scope != Scope::Everywhere && judged(self, ids, forest).is_none()
    }
}
