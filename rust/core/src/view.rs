//! Which memories are visible: a walk along the path, or a scan of all spans.
//!
//! A memory whose sources lie on one path hangs on the deepest of them, its
//! home. What is visible is what hangs on the path, so the walk costs the
//! chains of the path and the memories found, however many others there are.
//! Where much is visible, comparing every span is faster. Both give one set.

use crate::Map;
use crate::chains::Chain;
use crate::facts::Facts;
use crate::ids::{Mem, Node};
use crate::provenance::{Memories, Shape};
use crate::reason::Admitted;
use crate::spans::{Span, Spans};
use crate::stand::Stand;
use crate::topology::Forest;
use crate::tour::Tour;

/// Marks a memory that has homes in other trees too.
const SEVERAL: u32 = 1 << 31;

/// A set of memories.
#[derive(Clone, Debug)]
pub enum Visible {
    /// Their ordinals, in no order, each once.
    Sparse(Vec<u32>),
    /// One bit a memory.
    Dense(Vec<u64>),
}

impl Visible {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Sparse(ordinals) => ordinals.len(),
            Self::Dense(words) => words.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their ordinals, ascending.
    #[must_use]
    pub fn ordinals(&self) -> Vec<u32> {
        match self {
            Self::Sparse(ordinals) => {
                let mut sorted = ordinals.clone();
                sorted.sort_unstable();
                sorted
            }
            Self::Dense(words) => {
                let mut out = Vec::with_capacity(self.len());
                for (at, &word) in words.iter().enumerate() {
                    let mut left = word;
                    while left != 0 {
                        out.push(at as u32 * 64 + left.trailing_zeros());
                        left &= left - 1;
                    }
                }
                out
            }
        }
    }

    /// Set the little-endian bit of each in zeroed bytes.
    pub fn set_bits(&self, bytes: &mut [u8]) {
        match self {
            Self::Sparse(ordinals) => {
                for &ordinal in ordinals {
                    bytes[ordinal as usize / 8] |= 1 << (ordinal % 8);
                }
            }
            Self::Dense(words) => {
                let (whole, rest) = bytes.as_chunks_mut::<8>();
                whole.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
                if let Some(word) = words.get(whole.len()) {
                    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
                }
            }
        }
    }
}

/// A bulk answer: what is visible, and how often each reason was let through.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The memories.
    pub visible: Visible,
    /// By reason.
    pub admitted: Admitted,
}

/// Memories with the depths at which they hang, sorted by depth.
#[derive(Default)]
struct Run {
    depths: Vec<u32>,
    memories: Vec<u32>,
}

impl Run {
    fn push(&mut self, depth: u32, mem: u32) {
        self.depths.push(depth);
        self.memories.push(mem);
    }

    /// The memories that hang at `depth` or above it. O(log memories), O(1) for nearly all of them.
    fn down_to(&self, depth: u32) -> &[u32] {
        // What hangs below where the path turns off is most often a short dead end.
        let tail = self.depths.iter().rev().take(8).position(|&at| at <= depth);
        let len =
            tail.map_or_else(|| self.depths.partition_point(|&at| at <= depth), |below| self.depths.len() - below);
        &self.memories[..len]
    }

    fn merged(&self, other: &Self) -> Self {
        let mut both: Vec<_> = [self, other].into_iter().flat_map(|run| run.depths.iter().zip(&run.memories)).collect();
        both.sort_by_key(|&(depth, _)| depth);
        let (depths, memories) = both.into_iter().unzip();
        Self { depths, memories }
    }
}

/// Memories that hang on one chain: runs of falling length.
///
/// In the usual order the first run grows at its end. Out of order, runs are merged as
/// in Bentley and Saxe, "Decomposable searching problems", Journal of Algorithms 1(4), 1980:
/// O(log memories) amortised.
#[derive(Default)]
struct Hung {
    first: Run,
    more: Vec<Run>,
}

impl Hung {
    fn push(&mut self, depth: u32, mem: u32) {
        let last = self.more.last_mut().unwrap_or(&mut self.first);
        if last.depths.last().is_none_or(|&deepest| deepest <= depth) {
            last.push(depth, mem);
            return;
        }
        // The last run may have grown at its end since it was begun.
        if let Some(grown) = self.more.pop() {
            self.put(grown);
        }
        self.put(Run { depths: vec![depth], memories: vec![mem] });
    }

    /// Add a run, merged with those that are not at least twice as long.
    fn put(&mut self, mut run: Run) {
        while let Some(longer) = self.more.pop_if(|longer| longer.depths.len() < 2 * run.depths.len()) {
            run = longer.merged(&run);
        }
        if self.more.is_empty() && self.first.depths.len() < 2 * run.depths.len() {
            self.first = self.first.merged(&run);
        } else {
            self.more.push(run);
        }
    }
}

/// Where every settled memory without a flag hangs.
pub struct Index {
    /// By memory; [`Span::NEVER`] where one anchor can never show it in strict. As columns to be
    /// scanned, and as rows, which end with one that covers nothing, to be looked up.
    spans: Spans,
    rows: Vec<Span>,
    /// Memories whose home is not in the tour.
    later: Vec<(Node, Mem)>,
    /// The same as bits.
    is_later: Vec<u64>,
    on_chain: Vec<Hung>,
    on_leaf: Map<u32, Vec<u32>>,
    several: Vec<Mem>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            spans: Spans::default(),
            rows: vec![Span::NEVER],
            later: Vec::new(),
            is_later: Vec::new(),
            on_chain: Vec::new(),
            on_leaf: Map::default(),
            several: Vec::new(),
        }
    }
}

impl Index {
    /// Keep room for one more memory.
    pub fn push(&mut self) {
        self.spans.grow(self.rows.len());
        self.rows.push(Span::NEVER);
        self.is_later.resize(self.spans.len().div_ceil(64), 0);
    }

    /// Hang a memory that is settled. O(1) in order, O(log memories) amortised out of order.
    pub fn hang(&mut self, mem: Mem, facts: Facts<'_>) {
        let Facts { forest, tour, memories, .. } = facts;
        if memories.flags(mem) != 0 {
            return;
        }
        let shape = memories.shape(mem);
        let (home, mark) = match shape {
            Shape::Home(home) => {
                self.set_span(mem, home, tour);
                (home, 0)
            }
            Shape::Several(_) => {
                self.several.push(mem);
                (memories.homes(&shape)[0], SEVERAL)
            }
            Shape::Nowhere | Shape::Wide | Shape::Fork => return,
        };
        match forest.chain(home) {
            Some(chain) => self.on_chain(chain).push(forest.depth(home), mem.0 | mark),
            None => self.on_leaf.entry(home.0).or_default().push(mem.0 | mark),
        }
    }

    fn set_span(&mut self, mem: Mem, home: Node, tour: &Tour) {
        let span = tour.span(home);
        let toured = if span.size > 0 { span } else { Span::LATER };
        self.spans.set(mem.at(), toured);
        self.rows[mem.at()] = toured;
        if span.size == 0 {
            self.later.push((home, mem));
            self.is_later[mem.at() / 64] |= 1 << (mem.0 % 64);
        }
    }

    fn on_chain(&mut self, chain: Chain) -> &mut Hung {
        if self.on_chain.len() <= chain.at() {
            self.on_chain.resize_with(chain.at() + 1, Hung::default);
        }
        &mut self.on_chain[chain.at()]
    }

    /// A message got its first child, and so its chain: what hangs on it moves there.
    pub fn joined(&mut self, forest: &Forest, node: Node) {
        if self.on_leaf.is_empty() {
            return;
        }
        let (Some(chain), Some(memories)) = (forest.chain(node), self.on_leaf.remove(&node.0)) else { return };
        let depth = forest.depth(node);
        let hung = self.on_chain(chain);
        memories.into_iter().for_each(|mem| hung.push(depth, mem));
    }

    /// Take the spans anew after the tour was rebuilt. O(memories).
    pub fn rebuilt(&mut self, tour: &Tour, memories: &Memories) {
        self.later.clear();
        self.is_later.fill(0);
        for at in 0..self.spans.len() {
            let mem = Mem(at as u32);
            match memories.shape(mem) {
                Shape::Home(home) if memories.is_settled(mem) && memories.flags(mem) == 0 => {
                    self.set_span(mem, home, tour);
                }
                _ => {}
            }
        }
    }

    /// The spans of all memories, and a last one that covers nothing.
    #[must_use]
    pub fn rows(&self) -> &[Span] {
        &self.rows
    }

    /// How many memories have a home that is not in the tour.
    #[must_use]
    pub fn later(&self) -> usize {
        self.later.len()
    }

    /// Whether the home of a memory, by any ordinal, is not in the tour.
    #[must_use]
    pub fn is_later(&self, mem: u32) -> bool {
        self.is_later.get(mem as usize / 64).is_some_and(|word| word & 1 << (mem % 64) != 0)
    }

    /// The span of a memory's home.
    #[must_use]
    pub fn span(&self, mem: Mem) -> Span {
        self.rows[mem.at()]
    }

    /// The memories without a flag that are on the path. At least one anchor must be usable.
    #[must_use]
    pub fn on_path(&self, stand: &Stand, facts: Facts<'_>) -> Visible {
        self.walk(stand, facts).map_or_else(|| self.scan(stand, facts), Visible::Sparse)
    }

    /// The same by way of the path; `None` where so much is found that a scan is faster.
    #[must_use]
    pub fn walk(&self, stand: &Stand, facts: Facts<'_>) -> Option<Vec<u32>> {
        let Facts { forest, .. } = facts;
        // A scan costs about a sixteenth of what a memory found does, for each anchor; a step to
        // the next chain as much as four memories found.
        let mut budget = self.spans.len() * stand.anchors().len() / 16 + 64;
        let mut found = Vec::with_capacity(32);
        for anchor in stand.anchors() {
            if forest.chain(anchor).is_none()
                && let Some(hung) = self.on_leaf.get(&anchor.0)
            {
                found.push(&hung[..]);
            }
            let mut at = forest.chain_above(anchor);
            while let Some((chain, depth)) = at {
                let hung = self.on_chain.get(chain.at()).into_iter();
                for run in hung.flat_map(|hung| std::iter::once(&hung.first).chain(&hung.more)) {
                    let memories = run.down_to(depth);
                    budget = budget.checked_sub(memories.len())?;
                    found.push(memories);
                }
                budget = budget.checked_sub(4)?;
                at = forest.chains().above(chain);
            }
        }
        let mut out = found.concat();
        if !self.several.is_empty() {
            out.retain(|&mem| mem & SEVERAL == 0 || Self::shows(Mem(mem & !SEVERAL), stand, facts));
            out.iter_mut().for_each(|mem| *mem &= !SEVERAL);
        }
        Some(out)
    }

    fn shows(mem: Mem, stand: &Stand, facts: Facts<'_>) -> bool {
        let shape = facts.memories.shape(mem);
        facts.memories.homes(&shape).iter().all(|&home| stand.is_on_path(facts, home))
    }

    /// The same by way of all spans.
    #[must_use]
    pub fn scan(&self, stand: &Stand, facts: Facts<'_>) -> Visible {
        let mut words = vec![0; self.spans.len().div_ceil(64)];
        for anchor in stand.anchors() {
            self.spans.mark_covering(facts.tour.span(anchor).start, &mut words);
        }
        let mut set = |mem: Mem| words[mem.at() / 64] |= 1 << (mem.0 % 64);
        for &(home, mem) in &self.later {
            if stand.is_on_path(facts, home) {
                set(mem);
            }
        }
        for &mem in &self.several {
            if Self::shows(mem, stand, facts) {
                set(mem);
            }
        }
        Visible::Dense(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many come together, and in whatever order of depths, runs stay few and nothing is lost.
    #[test]
    fn runs_stay_few_in_every_order() {
        for together in 1..5 {
            for order in [0_u32, 1, 2] {
                let mut hung = Hung::default();
                let count = 3000_u32;
                for at in 0..count {
                    let depth = match order {
                        0 => at,
                        1 => count - at,
                        _ => at.wrapping_mul(2_654_435_761) % count,
                    };
                    (0..together).for_each(|mem| hung.push(depth, at * together + mem));
                }
                let total = count * together;
                assert!(hung.more.len() <= total.ilog2() as usize + 2, "{together} {order}: {}", hung.more.len());
                let mut all: Vec<_> =
                    std::iter::once(&hung.first).chain(&hung.more).flat_map(|run| run.memories.clone()).collect();
                all.sort_unstable();
                assert_eq!(all, (0..total).collect::<Vec<_>>());
                assert!(std::iter::once(&hung.first).chain(&hung.more).all(|run| run.depths.is_sorted()));
            }
        }
    }
}
