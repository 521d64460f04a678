//! What hangs on the messages of a chain, by depth: runs of memories, each sorted.

use crate::Map;
use crate::chains::Chain;
use crate::ids::Node;
use crate::topology::Forest;

/// Memories with the depths at which they hang, sorted by depth.
#[derive(Default)]
pub struct Run {
    /// Ascending.
    pub depths: Vec<u32>,
    /// The memory that hangs at each.
    pub memories: Vec<u32>,
}

impl Run {
    fn push(&mut self, depth: u32, mem: u32) {
        self.depths.push(depth);
        self.memories.push(mem);
    }

    /// The memories that hang below `above`, and down to `depth`. O(log memories).
    #[must_use]
    pub fn between(&self, above: u32, depth: u32) -> &[u32] {
        let marked = self.depths.partition_point(|&at| at <= above);
        &self.down_to(depth)[marked..]
    }

    /// The memories that hang at `depth` or above it. O(log memories), O(1) for nearly all of them.
    #[must_use]
    pub fn down_to(&self, depth: u32) -> &[u32] {
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
pub struct Hung {
    /// The longest run, and the only one where all came in order.
    pub first: Run,
    more: Vec<Run>,
}

impl Hung {
    /// Hang a memory. O(1) in order of depth, O(log memories) amortised out of order.
    pub fn push(&mut self, depth: u32, mem: u32) {
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

    /// Make one run of all. O(memories · log memories) where there are several.
    pub fn merge(&mut self) {
        // The shortest first, so that each is copied a few times and the longest once.
        if let Some(rest) = std::mem::take(&mut self.more).into_iter().rev().reduce(|rest, run| run.merged(&rest)) {
            self.first = self.first.merged(&rest);
        }
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.first).chain(&self.more)
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

/// What hangs on all messages: by chain, or by the message itself where it has none yet.
#[derive(Default)]
pub struct Hanging {
    on_chain: Vec<Hung>,
    on_leaf: Map<u32, Vec<u32>>,
}

impl Hanging {
    /// Hang a memory on an attached message. Cost as [`Hung::push`].
    pub fn push(&mut self, node: Node, mem: u32, forest: &Forest) {
        match forest.chain(node) {
            Some(chain) => self.of_chain(chain).push(forest.depth(node), mem),
            None => self.on_leaf.entry(node.0).or_default().push(mem),
        }
    }

    /// A message got its first child, and so its chain: what hangs on it moves there.
    pub fn joined(&mut self, forest: &Forest, node: Node) {
        if self.on_leaf.is_empty() {
            return;
        }
        let (Some(chain), Some(memories)) = (forest.chain(node), self.on_leaf.remove(&node.0)) else { return };
        let depth = forest.depth(node);
        let hung = self.of_chain(chain);
        memories.into_iter().for_each(|mem| hung.push(depth, mem));
    }

    /// What hangs on a message without a chain.
    #[must_use]
    pub fn on_leaf(&self, node: Node) -> &[u32] {
        if self.on_leaf.is_empty() { &[] } else { self.on_leaf.get(&node.0).map_or(&[], Vec::as_slice) }
    }

    /// What hangs on a chain.
    #[must_use]
    pub fn on_chain(&self, chain: Chain) -> Option<&Hung> {
        self.on_chain.get(chain.at())
    }

    /// The same, to be changed.
    pub fn of_chain(&mut self, chain: Chain) -> &mut Hung {
        if self.on_chain.len() <= chain.at() {
            self.on_chain.resize_with(chain.at() + 1, Hung::default);
        }
        &mut self.on_chain[chain.at()]
    }

    /// How many chains there may be on which anything hangs.
    #[must_use]
    pub fn chains(&self) -> usize {
        self.on_chain.len()
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
                let mut all: Vec<_> = hung.runs().flat_map(|run| run.memories.clone()).collect();
                all.sort_unstable();
                assert_eq!(all, (0..total).collect::<Vec<_>>());
                assert!(hung.runs().all(|run| run.depths.is_sorted()));
            }
        }
    }
}
