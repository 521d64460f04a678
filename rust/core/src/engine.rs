//! Fold events, then ask: the whole engine behind one type.
//!
//! Folding checks a block before it changes anything. Questions take `&self`;
//! broad ones gain from [`Engine::prepare`], which freezes the tour and updates
//! what is not settled. No answer depends on when it was called last.

use crate::encode;
use crate::error::BlockError;
use crate::event::{self, Parent, Type};
use crate::explain::{self, Explanation};
use crate::facts::Facts;
use crate::ids::{Bearer, Ids, Mem, Node, Number};
use crate::provenance::{Memories, Shape};
use crate::reason::{Admitted, LEGACY_SOURCE, PLACED, Reasons, SIBLING, UNKNOWN_MEMORY};
use crate::spans::{Span, covers_each};
use crate::stand::{Ambiguous, Stand};
use crate::topology::{Above, Forest};
use crate::tour::Tour;
use crate::view::{Answer, Index, Visible};
use crate::{Map, Set};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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
    index: Index,
    seq: u64,
    attached: Vec<Node>,
    settled: Vec<Mem>,
}

impl Engine {
    /// Without events. The seed keeps hostile ids from colliding; no answer depends on it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            ids: Ids::new(seed),
            forest: Forest::default(),
            tour: Tour::default(),
            memories: Memories::default(),
            index: Index::default(),
            seq: 0,
            attached: Vec::new(),
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

    fn facts(&self) -> Facts<'_> {
        Facts { ids: &self.ids, forest: &self.forest, tour: &self.tour, memories: &self.memories }
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
                    Above::Message(parent) => Some(Some(self.ids.name(self.forest.number(parent)))),
                    Above::Missing(parent) => Some(Some(self.ids.name(parent))),
                };
                Some(encode::message_skeleton(id, parent))
            }
            Bearer::Memory(mem) => Some(encode::memory_skeleton(
                id,
                &names(self.memories.sources(mem)),
                &names(self.memories.upstreams(mem)),
                self.memories.label(mem),
                self.memories.key(mem),
            )),
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
        encode::encode_blocks(self.seq, skeletons, &self.ids)
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
            if skeleton.kind == Type::Message {
                self.push_message(skeleton.id, skeleton.parent, seq);
            } else {
                self.ids.bear(skeleton.id, Bearer::Memory(Mem(self.memories.len() as u32)), seq);
                self.index.push();
                self.memories.push(skeleton, &block, &self.ids, &self.forest, &mut self.settled);
            }
            let facts = Facts { ids: &self.ids, forest: &self.forest, tour: &self.tour, memories: &self.memories };
            for mem in self.settled.drain(..) {
                self.index.hang(mem, facts);
            }
            self.seq += 1;
        }
        Ok(block.skeletons.len())
    }

    fn check(&self, block: &event::Block<'_>) -> Result<(), BlockError> {
        let mut met: Vec<_> = block.skeletons.iter().map(|skeleton| skeleton.id).collect();
        met.sort_unstable();
        if met.windows(2).any(|pair| pair[0] == pair[1]) || met.iter().any(|&id| self.ids.seq(id).is_some()) {
            return Err(BlockError::Damaged("two events of the log bear one id"));
        }
        for skeleton in &block.skeletons {
            match skeleton.kind {
                Type::Message => {}
                Type::Memory if !skeleton.supersedes_or_adopts => {}
                Type::Memory => return Err(BlockError::Unsupported("memories that supersede or adopt")),
                Type::Retraction => return Err(BlockError::Unsupported("retractions")),
                Type::Restoration => return Err(BlockError::Unsupported("restorations")),
                Type::Erasure => return Err(BlockError::Unsupported("erasures")),
            }
        }
        Ok(())
    }

    fn push_message(&mut self, number: Number, parent: Parent, seq: u32) {
        let parent_node = match parent {
            Parent::Id(id) => self.ids.message(id),
            Parent::Root | Parent::Legacy => None,
        };
        let attached = &mut self.attached;
        let node = self.forest.push(number, parent, parent_node, |_, node| attached.push(node));
        self.ids.bear(number, Bearer::Message(node), seq);
        if self.attached.is_empty() {
            self.tour.detached(&self.forest);
            self.memories.message_detached(number);
            return;
        }
        for node in self.attached.drain(..) {
            self.tour.attached(&self.forest, node);
            if let Some(parent) = self.forest.parent(node) {
                self.index.joined(&self.forest, parent);
            }
            let number = self.forest.number(node);
            self.memories.message_attached(number, &self.ids, &self.forest, &mut self.settled);
        }
    }

    /// Whether broad questions have what they gain from.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.memories.is_current() && !self.tour.is_stale()
    }

    /// Whether flags of what is not settled are up to date: reasons need them, strict sets do not.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.memories.is_current()
    }

    /// Freeze the tour where the forest has grown by a quarter, and update what is not settled.
    pub fn prepare(&mut self) {
        self.update();
        if self.tour.is_stale() {
            self.tour.rebuild(&self.forest);
            self.index.rebuilt(&self.tour, &self.memories);
        }
    }

    /// Update the flags of what is not settled. O(what is not settled).
    pub fn update(&mut self) {
        self.memories.update(&self.ids, &self.forest);
    }

    /// Where a view on these anchors stands; `None` is an id that was never mentioned.
    ///
    /// # Errors
    /// [`Ambiguous`] where two lie in one tree.
    pub fn stand(&self, anchors: &[Option<Number>]) -> Result<Stand, Ambiguous> {
        Stand::new(anchors, &self.ids, &self.forest)
    }

    /// All reasons of a memory; `None` is one that is not in the log. Needs [`Self::is_current`].
    #[must_use]
    pub fn reasons(&self, mem: Option<Mem>, stand: &Stand) -> Reasons {
        match mem {
            Some(mem) => stand.reasons(mem, self.facts()),
            None if stand.is_usable() => UNKNOWN_MEMORY,
            None => UNKNOWN_MEMORY | stand.problems(),
        }
    }

    /// The same as [`Self::reasons`] by way of the tour alone; `None` where that does not decide.
    #[must_use]
    pub fn reasons_by_tour(&self, mem: Mem, stand: &Stand) -> Option<Reasons> {
        let span = self.index.span(mem);
        let (top, anchor) = stand.only_anchor()?;
        (span.size > 0).then(|| self.tour.misplaced(span, anchor, top))
    }

    /// Whether freezing the tour would cost less than `slow` verdicts have cost for want of it.
    #[must_use]
    pub fn tour_pays(&self, slow: usize) -> bool {
        self.tour.is_stale() && slow > self.forest.len() / 4
    }

    /// All reasons of every memory, by ordinal. O(memories + references of forks). Needs [`Self::is_current`].
    #[must_use]
    pub fn all_reasons(&self, stand: &Stand) -> Vec<Reasons> {
        let flags = self.memories.all_flags();
        if !stand.is_usable() {
            return flags.iter().map(|flags| flags | stand.problems()).collect();
        }
        // Forks and wide memories first, upstreams before what derives from them.
        let mut out = vec![0; flags.len()];
        let underived = |mem: &Mem| !self.memories.is_settled(*mem) && self.memories.upstreams(*mem).is_empty();
        for mem in self.memories.wide().iter().copied().chain(self.memories.irregular().filter(underived)) {
            out[mem.at()] = self.misplaced(mem, stand, &out);
        }
        for group in self.memories.wide_open() {
            let all = group.iter().fold(0, |all, &mem| all | self.misplaced(mem, stand, &out));
            group.iter().for_each(|mem| out[mem.at()] = all);
        }
        for (at, reasons) in out.iter_mut().enumerate() {
            let shape = self.memories.shape(Mem(at as u32));
            if !matches!(shape, Shape::Wide | Shape::Fork) {
                *reasons = stand.misplaced_homes(self.memories.homes(&shape), self.facts());
            }
            *reasons = stand.with_problems(*reasons | flags[at]);
        }
        out
    }

    /// What is wrong with the sources of a fork or wide memory, given that of those it derives from.
    fn misplaced(&self, mem: Mem, stand: &Stand, known: &[Reasons]) -> Reasons {
        let own = stand.misplaced_own(mem, self.facts());
        self.facts().upstreams(mem).fold(own, |out, up| {
            let shape = self.memories.shape(up);
            match shape {
                Shape::Wide | Shape::Fork => out | known[up.at()],
                _ => out | stand.misplaced_homes(self.memories.homes(&shape), self.facts()),
            }
        })
    }

    /// What is visible in strict, where a walk along the path finds it quickly; `None` where a
    /// scan of all memories is faster. No anchor usable: nothing.
    #[must_use]
    pub fn walk(&self, stand: &Stand) -> Option<Answer> {
        if stand.anchors().len() > 1 && !self.memories.wide().is_empty() {
            return None;
        }
        let visible = self.index.walk(stand, self.facts())?;
        Some(Answer { visible: Visible::Sparse(visible), admitted: Admitted::default() })
    }

    /// What is visible in strict, by a scan of all memories that have their sources in few trees.
    #[cfg(test)]
    pub(crate) fn scan(&self, stand: &Stand) -> Visible {
        self.index.scan(stand, self.facts())
    }

    /// Which memories are visible under a policy. Where it lets anything through, needs [`Self::is_current`].
    ///
    /// Cost: the path and what is found, or a scan of all memories, whichever is less; with a
    /// policy, the memories that have a flag on top.
    #[must_use]
    pub fn answer(&self, stand: &Stand, policy: Reasons) -> Answer {
        let policy = policy & !UNKNOWN_MEMORY;
        if !stand.is_usable() && stand.problems() & !policy != 0 {
            return Answer { visible: Visible::Sparse(Vec::new()), admitted: Admitted::default() };
        }
        if !stand.is_usable() || policy & PLACED != 0 {
            return Self::among(&self.all_reasons(stand), policy);
        }
        let mut visible = self.index.on_path(stand, self.facts());
        let mut admitted = Admitted::default();
        let mut show = |mem: Mem, reasons: Reasons| {
            if reasons & !policy == 0 {
                admitted.add(reasons);
                match &mut visible {
                    Visible::Sparse(ordinals) => ordinals.push(mem.0),
                    Visible::Dense(words) => words[mem.at() / 64] |= 1 << (mem.0 % 64),
                }
            }
        };
        // A wide memory has sources in more trees than a few anchors stand in.
        if stand.anchors().len() > 1 {
            for &mem in self.memories.wide() {
                if self.memories.shape(mem) == Shape::Wide && self.memories.flags(mem) == 0 {
                    show(mem, self.reasons(Some(mem), stand));
                }
            }
        }
        if policy != 0 {
            for mem in self.memories.irregular() {
                if self.memories.flags(mem) & !policy == 0 {
                    show(mem, self.reasons(Some(mem), stand));
                }
            }
        }
        Answer { visible, admitted }
    }

    fn among(reasons: &[Reasons], policy: Reasons) -> Answer {
        let mut words = vec![0; reasons.len().div_ceil(64)];
        let mut admitted = Admitted::default();
        for (at, &reasons) in reasons.iter().enumerate() {
            if reasons & !policy == 0 {
                words[at / 64] |= 1 << (at % 64);
                admitted.add(reasons);
            }
        }
        Answer { visible: Visible::Dense(words), admitted }
    }

    /// Whether memory `mems[i]` is visible at message `nodes[i]`, both by ordinal: 1 or 0. An ordinal
    /// beyond all is not in the log. Returns what was let through.
    ///
    /// One comparison a pair in strict, where the tour is fresh. Under a policy, needs [`Self::is_current`].
    pub fn pairs(&self, mems: &[AtomicU32], nodes: &[AtomicU32], policy: Reasons, visible: &mut [u8]) -> Admitted {
        let policy = policy & !UNKNOWN_MEMORY;
        let mut admitted = Admitted::default();
        let pairs = mems.iter().zip(nodes).map(|(mem, node)| (mem.load(Relaxed), node.load(Relaxed)));
        if policy == 0 {
            covers_each(self.index.rows(), mems, self.tour.positions(), nodes, visible);
            if !self.index.is_toured() {
                for ((mem, node), visible) in pairs.zip(visible) {
                    *visible |= u8::from(self.shows_later(mem, node));
                }
            }
            return admitted;
        }
        for ((mem, node), visible) in pairs.zip(visible) {
            let mem = ((mem as usize) < self.memories.len()).then_some(Mem(mem));
            let node = ((node as usize) < self.forest.len()).then_some(Node(node));
            let reasons = self.reasons(mem, &Stand::at(node, &self.forest));
            *visible = u8::from(reasons & !policy == 0);
            if *visible == 1 {
                admitted.add(reasons);
            }
        }
        admitted
    }

    /// The same by chain labels, for a memory whose home is not in the tour.
    fn shows_later(&self, mem: u32, node: u32) -> bool {
        let (mem, node) = (Mem(mem), Node(node));
        if mem.at() >= self.memories.len() || node.at() >= self.forest.len() || self.index.span(mem) != Span::LATER {
            return false;
        }
        let shape = self.memories.shape(mem);
        let homes = self.memories.homes(&shape);
        self.forest.is_attached(node) && homes.iter().all(|&home| self.forest.is_ancestor(home, node))
    }

    /// The memories that no set of anchors can show in strict, with the reasons that stay. Needs
    /// [`Self::is_current`]. What is in more trees than a reduction holds is judged by those it holds.
    #[must_use]
    pub fn unshowable(&self) -> Vec<(Mem, Reasons)> {
        let stay = |mem: Mem| {
            let fork = if self.memories.shape(mem) == Shape::Fork { SIBLING } else { 0 };
            self.memories.flags(mem) | fork
        };
        let all = (0..self.memories.len() as u32).map(Mem).map(|mem| (mem, stay(mem)));
        all.filter(|&(_, reasons)| reasons != 0).collect()
    }

    /// How deep the deepest effective source of a memory lies; -1 where none is attached.
    ///
    /// O(1) for sources on one path, else O(what it derives from). Needs [`Self::is_current`].
    #[must_use]
    pub fn depth(&self, mem: Mem) -> i64 {
        let (mut deepest, mut next, mut met) = (-1, vec![mem], Set::from_iter([mem]));
        while let Some(mem) = next.pop() {
            let shape = self.memories.shape(mem);
            if self.memories.flags(mem) & LEGACY_SOURCE != 0 {
                deepest = deepest.max(0);
            }
            let own = self.memories.sources(mem).iter().filter_map(|&source| self.ids.message(source));
            let attached = own.filter(|&node| self.forest.is_attached(node));
            let nodes: Vec<_> = match shape {
                Shape::Wide | Shape::Fork => attached.collect(),
                _ => self.memories.homes(&shape).to_vec(),
            };
            deepest = nodes.iter().fold(deepest, |deepest, &node| deepest.max(i64::from(self.forest.depth(node))));
            if matches!(shape, Shape::Wide | Shape::Fork) {
                next.extend(self.facts().upstreams(mem).filter(|&up| met.insert(up)));
            }
        }
        deepest
    }

    /// All reasons of a memory with the ids at fault. O(all that it derives from).
    #[must_use]
    pub fn explain(&self, mem: Mem, stand: &Stand) -> Explanation {
        explain::explain(mem, stand, self.facts())
    }
}
