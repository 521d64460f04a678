//! Fold events, then ask: the whole engine behind one type.
//!
//! Folding checks a block before it changes anything. Questions take `&self`;
//! broad ones gain from [`Engine::prepare`], which freezes the tour and updates
//! what is not settled. No answer depends on when it was called last.

use crate::Map;
use crate::changes::Changes;
use crate::dependents::By;
use crate::encode::{self, MemoryFields};
use crate::error::BlockError;
use crate::event::{self};
use crate::facts::Facts;
use crate::ids::{Bearer, Ids, Mem, Node, Number};
use crate::judged::{judge_added, judge_stale};
use crate::marked::Marked;
use crate::provenance::Memories;
use crate::skeleton::{Block, Parent, Skeleton, Type};
use crate::topology::{Above, Forest};
use crate::tour::Tour;
use crate::view::Index;

/// What a batch would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Events whose id nothing bears yet, by their place in the batch.
    pub new: Vec<usize>,
    /// Events that the log has with the same skeleton, and their positions.
    pub stored: Vec<(usize, u32)>,
    /// Events that stand in the batch with the same skeleton before, and where.
    pub repeated: Vec<(usize, usize)>,
    /// The first event whose id bears another skeleton; in the batch, or (`None`) in the log.
    pub conflict: Option<(usize, Option<usize>)>,
}

/// A fold over the events of a log.
pub struct Engine {
    ids: Ids,
    forest: Forest,
    tour: Tour,
    memories: Memories,
    changes: Changes,
    pub(crate) index: Index,
    pub(crate) marked: Marked,
    seq: u64,
    /// Scratch of `push_message`: what else it attached.
    late: Vec<Node>,
    settled: Vec<Mem>,
}

impl Engine {
    /// Without events. The seed keeps hostile ids from colliding; no answer depends on it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let ids = Ids::new(seed);
        let memories = Memories::new(ids.hasher());
        Self {
            ids,
            forest: Forest::default(),
            tour: Tour::default(),
            memories,
            changes: Changes::default(),
            index: Index::default(),
            marked: Marked::default(),
            seq: 0,
            late: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// How many events were folded.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The ids.
    #[must_use]
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The messages.
    #[must_use]
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// The memories.
    #[must_use]
    pub fn memories(&self) -> &Memories {
        &self.memories
    }

    /// What later events changed about memories.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The tour over the messages.
    #[must_use]
    pub fn tour(&self) -> &Tour {
        &self.tour
    }

    /// All that questions read.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            ids: &self.ids,
            forest: &self.forest,
            tour: &self.tour,
            memories: &self.memories,
            changes: &self.changes,
        }
    }

    /// The canonical skeleton of the event that bears an id, in its string form. O(references).
    #[must_use]
    pub fn skeleton(&self, number: Number) -> Option<Vec<u8>> {
        let names = |numbers: &[Number]| numbers.iter().map(|&number| self.ids.name(number)).collect::<Vec<_>>();
        let id = self.ids.name(number);
        match self.ids.bearer(number) {
            Bearer::Nothing => None,
            Bearer::Message(node) => {
                let parent = match self.forest.above(node) {
                    Above::Legacy => None,
                    Above::Root => Some(None),
                    Above::Message(parent) => Some(Some(self.ids.name(self.ids.of_message(parent)))),
                    Above::Missing(parent) => Some(Some(self.ids.name(parent))),
                };
                Some(encode::message_skeleton(id, parent))
            }
            Bearer::Memory(mem) => {
                let fields = MemoryFields {
                    sources: &names(self.memories.sources(mem)),
                    derived_from: &names(self.memories.upstreams(mem)),
                    supersedes: &names(self.memories.supersedes(mem)),
                    adopts: self.memories.adopts(mem).map(|adopts| self.ids.name(adopts)),
                    label: self.memories.label(mem),
                    key: self.memories.key(mem),
                };
                Some(encode::memory_skeleton(id, &fields))
            }
            Bearer::Change(at) => Some(self.changes.skeleton(at, &self.ids, &self.memories)),
        }
    }

    /// What appending these string-form skeletons would do. O(bytes).
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where one does not begin as a skeleton does.
    pub fn plan(&self, skeletons: &[&[u8]]) -> Result<Plan, BlockError> {
        let mut plan = Plan::default();
        let mut first: Map<&str, usize> = Map::with_hasher(self.ids.hasher());
        for (at, skeleton) in skeletons.iter().enumerate() {
            let id = encode::skeleton_id(skeleton)?;
            let stored = self.ids.find(id).and_then(|number| Some((self.ids.seq(number)?, self.skeleton(number)?)));
            match (stored, first.get(id)) {
                (Some((seq, stored)), _) if stored == **skeleton => plan.stored.push((at, seq)),
                (Some(_), _) => plan.conflict = plan.conflict.or(Some((at, None))),
                (None, None) => {
                    first.insert(id, at);
                    plan.new.push(at);
                }
                (None, Some(&before)) if skeletons[before] == *skeleton => plan.repeated.push((at, before)),
                (None, Some(&before)) => plan.conflict = plan.conflict.or(Some((at, Some(before)))),
            }
        }
        Ok(plan)
    }

    /// The blocks that append these string-form skeletons, each with its first seq. O(bytes).
    ///
    /// # Errors
    /// [`BlockError`] where one is not canonical.
    pub fn encode(&self, skeletons: &[&[u8]]) -> Result<Vec<(u64, Vec<u8>)>, BlockError> {
        // A reference takes more than one byte.
        let bytes: usize = skeletons.iter().map(|skeleton| skeleton.len()).sum();
        if self.memories.references() + bytes > u32::MAX as usize {
            return Err(BlockError::Damaged("the log has too many references"));
        }
        encode::encode_blocks(self.seq, skeletons, &self.ids)
    }

    /// Whether [`Self::erased_by`] has anything to find.
    #[must_use]
    pub fn may_erase(&self, skeletons: &[&[u8]]) -> bool {
        !self.changes.erasures.is_empty() || skeletons.iter().any(|skeleton| encode::is_erasure(skeleton))
    }

    /// Were these string-form skeletons appended: which of them bear an erased id, by their place, and the positions
    /// of the stored messages and memories whose content would go. O(bytes + what is newly taken).
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where one is not canonical.
    pub fn erased_by(&mut self, skeletons: &[&[u8]]) -> Result<(Vec<usize>, Vec<u32>), BlockError> {
        let block = encode::read_batch(skeletons, &self.ids)?;
        let Changes { erasures, dependents, .. } = &mut self.changes;
        dependents.index(&self.memories);
        let foreseen = erasures.foreseen(&block, &self.ids, &self.memories, dependents);
        let known = |number: Number| number.at() < self.ids.len();
        let was = |number: Number| known(number) && erasures.has(number, &self.ids);
        let will_be = |number: Number| foreseen.named.contains(&number) || foreseen.taken.contains(&number);
        let has_content = |kind: Type| matches!(kind, Type::Message | Type::Memory);
        let erased = block.skeletons.iter().enumerate().filter(|(_, skeleton)| {
            let named = erasures.names(skeleton.id);
            has_content(skeleton.kind) && (named || was(skeleton.id) || will_be(skeleton.id))
        });
        let places = erased.map(|(at, _)| at).collect();
        let gone = foreseen.named.union(&foreseen.taken).copied().filter(|&number| known(number) && !was(number));
        let stored = gone.filter(|&number| matches!(self.ids.bearer(number), Bearer::Message(_) | Bearer::Memory(_)));
        let mut positions: Vec<_> = stored.filter_map(|number| self.ids.seq(number)).collect();
        positions.sort_unstable();
        Ok((places, positions))
    }

    /// The memories that have an id among their own sources, in the order of the log. O(references to the id), and
    /// once O(references of all memories).
    pub fn memories_from(&mut self, source: Number) -> Vec<Mem> {
        let dependents = &mut self.changes.dependents;
        dependents.index(&self.memories);
        let mut found: Vec<_> =
            dependents.of(source).filter_map(|(mem, by)| (by == By::Source).then_some(mem)).collect();
        found.reverse();
        found
    }

    /// Keep room for so many more events, which a log to be read is known to hold.
    pub fn reserve(&mut self, events: usize) {
        self.ids.reserve(events);
        self.forest.reserve(events);
    }

    /// Take in the next block and return how many events it holds. O(bytes + what it attaches and settles).
    ///
    /// # Errors
    /// [`BlockError`]; nothing of the block is folded.
    pub fn fold(&mut self, first_seq: u64, bytes: &[u8]) -> Result<usize, BlockError> {
        if first_seq != self.seq {
            return Err(BlockError::Gap(self.seq));
        }
        let before = self.ids.len();
        let block = event::decode_block(first_seq, bytes, &mut self.ids)?;
        if let Err(error) = self.check(&block) {
            self.ids.truncate(before);
            return Err(error);
        }
        for skeleton in &block.skeletons {
            let seq = self.seq as u32;
            match skeleton.kind {
                Type::Message => self.push_message(skeleton.id, skeleton.parent, seq),
                Type::Memory => self.push_memory(skeleton, &block, seq),
                Type::Retraction => {
                    self.bear_change(skeleton.id, seq);
                    let Self { ids, forest, memories, changes, .. } = self;
                    changes.push_retraction(skeleton, &block, ids, forest, memories);
                }
                Type::Restoration => {
                    self.bear_change(skeleton.id, seq);
                    self.changes.push_restoration(skeleton, &block, &self.ids, &self.memories);
                }
                Type::Erasure => {
                    self.bear_change(skeleton.id, seq);
                    self.changes.push_erasure(skeleton, &block, &self.ids, &self.memories);
                }
            }
            let facts = Facts {
                ids: &self.ids,
                forest: &self.forest,
                tour: &self.tour,
                memories: &self.memories,
                changes: &self.changes,
            };
            for &mem in &self.settled {
                self.index.hang(mem, facts);
            }
            for mem in self.settled.drain(..) {
                self.changes.settled(mem, &self.memories);
            }
            self.seq += 1;
        }
        let added = self.changes.take_added(&self.ids, &self.memories);
        if self.changes.covered.has_stale() || !added.is_empty() {
            let mut covered = std::mem::take(&mut self.changes.covered);
            judge_stale(&mut covered, self.facts());
            added.iter().for_each(|(retraction, named)| judge_added(&mut covered, *retraction, named, self.facts()));
            self.changes.covered = covered;
        }
        Ok(block.skeletons.len())
    }

    fn check(&self, block: &Block<'_>) -> Result<(), BlockError> {
        let mut met: Vec<_> = block.skeletons.iter().map(|skeleton| skeleton.id).collect();
        met.sort_unstable();
        if met.windows(2).any(|pair| pair[0] == pair[1]) || met.iter().any(|&id| self.ids.seq(id).is_some()) {
            return Err(BlockError::Damaged("two events of the log bear one id"));
        }
        Ok(())
    }

    fn push_memory(&mut self, skeleton: &Skeleton<'_>, block: &Block<'_>, seq: u32) {
        let mem = Mem(self.memories.len() as u32);
        self.ids.bear(skeleton.id, Bearer::Memory(mem), seq);
        self.index.push();
        self.memories.push(skeleton, block, &self.ids, &self.forest, &mut self.settled);
        self.changes.remembered(mem, &self.ids, &self.memories);
    }

    fn bear_change(&mut self, number: Number, seq: u32) {
        self.ids.bear(number, Bearer::Change(self.changes.numbers().len() as u32), seq);
    }

    fn push_message(&mut self, number: Number, parent: Parent, seq: u32) {
        let parent_node = match parent {
            Parent::Id(id) => self.ids.message(id),
            Parent::Root | Parent::Legacy => None,
        };
        let late = &mut self.late;
        let node = self.forest.push(number, parent, parent_node, |_, node| late.push(node));
        self.ids.bear(number, Bearer::Message(node), seq);
        if !self.forest.is_attached(node) {
            self.memories.message_detached(number);
            return;
        }
        self.message_attached(node);
        for node in std::mem::take(&mut self.late) {
            self.tour.attached_late(&self.forest, node);
            self.message_attached(node);
        }
    }

    fn message_attached(&mut self, node: Node) {
        if let Some(parent) = self.forest.parent(node) {
            self.index.joined(&self.forest, parent);
            self.changes.covered.joined(&self.forest, parent);
        }
        let number = self.ids.of_message(node);
        self.changes.attached(number, &self.ids, &self.memories);
        self.memories.message_attached(number, &self.ids, &self.forest, &mut self.settled);
    }

    /// Whether broad questions have what they gain from.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.is_current() && self.is_toured()
    }

    /// Whether flags of what is not settled are up to date: reasons need them, strict sets do not.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.memories.is_current()
    }

    /// Whether the tour points from everything that came after it: single verdicts gain from it.
    #[must_use]
    pub fn is_pointed(&self) -> bool {
        self.tour.is_pointed(&self.forest)
    }

    /// Let the tour point from everything that came after it. O(these).
    pub fn point(&mut self) {
        self.tour.point(&self.forest);
    }

    /// Whether the tour is fresh: it points from everything after it, and less than a quarter of the
    /// messages were attached, and of the memories settled, since it was frozen.
    #[must_use]
    pub fn is_toured(&self) -> bool {
        !self.tour.is_stale(&self.forest)
            && self.is_pointed()
            && self.index.hung() <= self.memories.len().max(self.forest.len()) / 4
    }

    /// Update what is not settled, and freeze the tour where it is not fresh.
    pub fn prepare(&mut self) {
        self.update();
        self.freeze();
    }

    /// Freeze the tour where it is not fresh. O(messages + memories).
    pub fn freeze(&mut self) {
        self.point();
        if !self.is_toured() {
            self.tour.rebuild(&self.forest);
            self.index.rebuilt(&self.forest, &self.tour, &self.memories);
        }
    }

    /// Update the flags of what is not settled. O(what is not settled).
    pub fn update(&mut self) {
        self.memories.update(&self.ids, &self.forest);
    }
}
