//! Skeletons: what an event says that decides visibility.

use crate::error::BlockError::{self, Damaged};
use crate::ids::Number;
use crate::msgpack::Reader;
use std::ops::Range;

/// The five types, by their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Has a place in a tree.
    Message,
    /// Derived from messages.
    Memory,
    /// Takes memories back.
    Retraction,
    /// Lifts a retraction.
    Restoration,
    /// Removes content.
    Erasure,
}

/// Where a retraction or a restoration is in effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Where its place is on the path.
    #[default]
    Branch,
    /// Wherever there is an anchor in the tree of its place.
    Tree,
    /// Always.
    Everywhere,
}

/// What stands above a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Never recorded.
    Legacy,
    /// Nothing.
    Root,
    /// This message.
    Id(Number),
}

/// One skeleton of a block; lists are ranges of [`Block::refs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton<'a> {
    /// Its type.
    pub kind: Type,
    /// Its id.
    pub id: Number,
    /// What a message continues.
    pub parent: Parent,
    /// The messages that a memory was derived from, or that a retraction names.
    pub sources: Range<usize>,
    /// The memories that a memory was derived from.
    pub derived_from: Range<usize>,
    /// The kind of a memory, where it is not `fact`.
    pub label: Option<&'a str>,
    /// What a memory is about.
    pub key: Option<&'a str>,
    /// What few events have, in [`Block::more`].
    pub more: Option<u32>,
}

/// What few events have; lists are ranges of [`Block::refs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct More<'a> {
    /// The memories that a memory replaces.
    pub supersedes: Range<usize>,
    /// The memory that it takes over.
    pub adopts: Option<Number>,
    /// The message at which a retraction or restoration stands.
    pub at: Option<Number>,
    /// Where it is in effect.
    pub scope: Scope,
    /// The memories that a retraction names, or the targets of an erasure.
    pub named: Range<usize>,
    /// The keys that a retraction names.
    pub keys: Keys<'a>,
    /// Whether a retraction of keys covers what is stated afresh.
    pub standing: bool,
    /// The retraction that a restoration lifts.
    pub retraction: Option<Number>,
    /// Whether an erasure takes only what it names.
    pub alone: bool,
}

/// The skeletons of one block.
#[derive(Debug, Default)]
pub struct Block<'a> {
    /// In the order of the log.
    pub skeletons: Vec<Skeleton<'a>>,
    /// The ids that lists refer to.
    pub refs: Vec<Number>,
    /// What few of the skeletons have.
    pub more: Vec<More<'a>>,
    /// All lists, as ranges of `refs`.
    pub(crate) lists: Vec<Range<usize>>,
}

/// Names as they stand in the bytes, found to be valid: a block may hold four million.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Keys<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut reader = Reader { bytes: self.0 };
        let name = reader.name().ok()?;
        self.0 = reader.bytes;
        Some(name)
    }
}

impl<'a> Block<'a> {
    /// What few events have, of one of its skeletons.
    #[must_use]
    pub fn more(&self, skeleton: &Skeleton<'_>) -> Option<&More<'a>> {
        Some(&self.more[skeleton.more? as usize])
    }

    /// Refuse lists that are not sorted by the bytes of their ids, or that repeat one.
    pub(crate) fn check_lists<'b>(&self, bytes: impl Fn(Number) -> &'b [u8]) -> Result<(), BlockError> {
        let is_sorted = |list: &Range<usize>| self.refs[list.clone()].is_sorted_by(|&a, &b| bytes(a) < bytes(b));
        if self.lists.iter().all(is_sorted) { Ok(()) } else { Err(Damaged("a list is not sorted")) }
    }
}
