//! The topology of the engine, fed as the engine feeds it: the forest, and what the tour notes of it.

use crate::shapes::ROOT;
use branchmem_core::ids::{Node, Number};
use branchmem_core::skeleton::Parent;
use branchmem_core::topology::Forest;
use branchmem_core::tour::Tour;

/// Forest and tour, without ids and memories. A message's number is its place among the parents.
#[derive(Default)]
pub struct Ours {
    pub forest: Forest,
    pub tour: Tour,
    late: Vec<Node>,
}

impl Ours {
    /// Take in the next message; parents come first.
    pub fn push(&mut self, parent: u32) {
        let number = Number(self.forest.len() as u32);
        if parent == ROOT {
            self.take_in(number, Parent::Root, None);
        } else {
            self.take_in(number, Parent::Id(Number(parent)), Some(Node(parent)));
        }
    }

    /// As `Engine::fold` does for a message.
    fn take_in(&mut self, number: Number, parent: Parent, node: Option<Node>) {
        let late = &mut self.late;
        self.forest.push(number, parent, node, |_, node| late.push(node));
        for node in self.late.drain(..) {
            self.tour.attached_late(&self.forest, node);
        }
    }

    /// Whether `a` is `b` or above it, by the tour.
    pub fn is_ancestor(&self, a: u32, b: u32) -> bool {
        self.tour.is_ancestor(&self.forest, Node(a), Node(b))
    }

    /// The same by chain labels alone.
    pub fn is_ancestor_by_chains(&self, a: u32, b: u32) -> bool {
        self.forest.is_ancestor(Node(a), Node(b))
    }
}

/// How often a label changed after it was given, while parents came first: looked at after every sixteenth
/// of the messages. A leaf has no chain yet, and gets one with its first child.
pub fn relabelled(parents: &[u32]) -> usize {
    let mut ours = Ours::default();
    let mut seen: Vec<(u32, Option<u32>)> = Vec::new();
    let mut moved = 0;
    for part in parents.chunks(parents.len().div_ceil(16)) {
        part.iter().for_each(|&parent| ours.push(parent));
        let label = |at: usize| {
            let node = Node(at as u32);
            (ours.forest.depth(node), ours.forest.chain(node).map(|chain| chain.0))
        };
        for (at, before) in seen.iter_mut().enumerate() {
            let now = label(at);
            moved += usize::from(now.0 != before.0 || (before.1.is_some() && now.1 != before.1));
            *before = now;
        }
        seen.extend((seen.len()..ours.forest.len()).map(label));
    }
    moved
}

/// How many messages are not labelled exactly once where all children come before their parents.
pub fn not_labelled_once(parents: &[u32]) -> usize {
    let mut forest = Forest::default();
    let mut times = vec![0_u8; parents.len()];
    for (at, &parent) in parents.iter().enumerate().rev() {
        let above = if parent == ROOT { Parent::Root } else { Parent::Id(Number(parent)) };
        let mut late = Vec::new();
        let node = forest.push(Number(at as u32), above, None, |_, node| late.push(node));
        late.extend(forest.is_attached(node).then_some(node));
        // They came last first.
        late.into_iter().for_each(|node| times[parents.len() - 1 - node.at()] += 1);
    }
    times.into_iter().filter(|&times| times != 1).count()
}
