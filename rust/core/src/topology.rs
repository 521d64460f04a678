//! The forest: where a message hangs, and which messages are attached.
//!
//! Messages arrive in any order. One whose parent is not here waits below the
//! parent's number; when the parent comes and is attached, all that waits
//! below is attached in one walk, and every message is labelled exactly once.
//! Messages in a circle of parents are never reached, so never attached.

use crate::Map;
use crate::chains::{Chain, Chains};
use crate::ids::{Node, Number};
use crate::skeleton::Parent;

const NONE: u32 = u32::MAX;
/// Parent of a root.
const ROOT: u32 = u32::MAX - 1;
/// Parent of a legacy message.
const LEGACY: u32 = u32::MAX - 2;

/// What a message hangs below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// Nothing: it is a root.
    Root,
    /// Unknown: it is a legacy message.
    Legacy,
    /// A message of the log.
    Message(Node),
    /// An id that no message bears.
    Missing(Number),
}

/// Marks the chain of a leaf, which is that of its parent; it gets its own with its first child.
const LEAF: u32 = 1 << 31;
/// A top without children: there is no chain yet.
const NO_CHAIN: u32 = LEAF - 1;

/// Where one message hangs, all of it side by side.
#[derive(Clone, Copy)]
struct Place {
    parent: u32,
    /// `NONE`: detached.
    depth: u32,
    /// With [`LEAF`] that of the parent.
    chain: u32,
    /// Children as linked lists, the latest first.
    first_child: u32,
    next_sibling: u32,
}

impl Place {
    /// The chain of this attached message, `node`, which has a child or gets its first one now.
    #[inline]
    fn chain_of_parent(&mut self, node: Node, chains: &mut Chains) -> Chain {
        if self.chain & LEAF != 0 {
            let chain = match self.chain & !LEAF {
                NO_CHAIN => chains.open(node),
                above => chains.join(node, self.depth, Node(self.parent), Chain(above)),
            };
            self.chain = chain.0;
        }
        Chain(self.chain)
    }
}

/// All messages with their parents, children and labels. 20 bytes a message, beside the chains.
#[derive(Default)]
pub struct Forest {
    places: Vec<Place>,
    chains: Chains,
    attached: usize,
    /// The latest child that waits below an id that no message bears.
    waiting: Map<u32, u32>,
    missing: Map<u32, Number>,
    tops: Vec<Node>,
    /// Scratch of `attach`: what is still to be attached.
    pending: Vec<u32>,
}

impl Forest {
    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// How many of them are attached.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Keep room for so many more messages.
    pub fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
    }

    /// The chains, numbered in the order in which they begin.
    #[must_use]
    pub fn chains(&self) -> &Chains {
        &self.chains
    }

    /// Roots and legacy messages, in order of arrival.
    #[must_use]
    pub fn tops(&self) -> &[Node] {
        &self.tops
    }

    /// Take in the next message, whose id has this number, and call `late` for each message before it that it attaches, parents
    /// first. `parent_node` is the message that bears the parent's id, if any. O(1) a message attached.
    #[inline]
    pub fn push(
        &mut self,
        number: Number,
        parent: Parent,
        parent_node: Option<Node>,
        late: impl FnMut(&Self, Node),
    ) -> Node {
        let node = Node(self.places.len() as u32);
        match parent_node {
            Some(above) if self.waiting.is_empty() && self.is_attached(above) => {
                self.follow(node, above);
            }
            _ => self.push_among_waiting(number, node, parent, parent_node, late),
        }
        node
    }

    /// The same where it may be waited for, or wait.
    #[inline(never)]
    fn push_among_waiting(
        &mut self,
        number: Number,
        node: Node,
        parent: Parent,
        parent_node: Option<Node>,
        mut late: impl FnMut(&Self, Node),
    ) {
        let orphans = self.waiting.remove(&number.0);
        let above = match (parent, parent_node) {
            (Parent::Root, _) => ROOT,
            (Parent::Legacy, _) => LEGACY,
            (Parent::Id(id), _) if id == number => node.0,
            (Parent::Id(_), Some(parent)) => parent.0,
            (Parent::Id(_), None) => NONE,
        };
        let first_child = orphans.unwrap_or(NONE);
        self.places.push(Place { parent: above, depth: NONE, chain: NONE, first_child, next_sibling: NONE });
        let mut child = first_child;
        while child != NONE {
            let place = &mut self.places[child as usize];
            place.parent = node.0;
            self.missing.remove(&child);
            child = place.next_sibling;
        }
        match (parent, above) {
            (_, ROOT | LEGACY) => {
                self.tops.push(node);
                self.attach(node, &mut late);
            }
            (Parent::Id(id), NONE) => {
                self.missing.insert(node.0, id);
                self.places[node.at()].next_sibling = self.waiting.insert(id.0, node.0).unwrap_or(NONE);
            }
            _ => {
                self.places[node.at()].next_sibling = self.places[above as usize].first_child;
                self.places[above as usize].first_child = node.0;
                if self.places[above as usize].depth != NONE {
                    self.attach(node, &mut late);
                }
            }
        }
    }

    /// Take in a message that nothing waits for, below an attached one: nearly all are such.
    #[inline]
    fn follow(&mut self, node: Node, parent: Node) {
        let Self { places, chains, attached, .. } = self;
        let above = &mut places[parent.at()];
        let chain = LEAF | above.chain_of_parent(parent, chains).0;
        let depth = above.depth + 1;
        let next_sibling = std::mem::replace(&mut above.first_child, node.0);
        places.push(Place { parent: parent.0, depth, chain, first_child: NONE, next_sibling });
        *attached += 1;
    }

    /// Attach a message whose parent is attached, and all below it.
    fn attach(&mut self, top: Node, late: &mut impl FnMut(&Self, Node)) {
        self.pending.push(top.0);
        while let Some(at) = self.pending.pop() {
            let node = Node(at);
            let (depth, chain) = match self.parent(node) {
                Some(parent) => {
                    let above = &mut self.places[parent.at()];
                    (above.depth + 1, above.chain_of_parent(parent, &mut self.chains).0)
                }
                None => (0, NO_CHAIN),
            };
            let place = &mut self.places[node.at()];
            (place.depth, place.chain) = (depth, LEAF | chain);
            self.attached += 1;
            if node.at() + 1 < self.places.len() {
                late(self, node);
            }
            let mut child = self.places[node.at()].first_child;
            while child != NONE {
                self.pending.push(child);
                child = self.places[child as usize].next_sibling;
            }
        }
    }

    /// What a message hangs below.
    #[must_use]
    pub fn above(&self, node: Node) -> Above {
        match self.places[node.at()].parent {
            ROOT => Above::Root,
            LEGACY => Above::Legacy,
            NONE => Above::Missing(self.missing[&node.0]),
            parent => Above::Message(Node(parent)),
        }
    }

    /// The message above, if it is one of the log.
    #[must_use]
    pub fn parent(&self, node: Node) -> Option<Node> {
        let parent = self.places[node.at()].parent;
        (parent < LEGACY).then_some(Node(parent))
    }

    /// Whether a message is a legacy message.
    #[must_use]
    pub fn is_legacy(&self, node: Node) -> bool {
        self.places[node.at()].parent == LEGACY
    }

    /// Whether a message is attached.
    #[must_use]
    pub fn is_attached(&self, node: Node) -> bool {
        self.places[node.at()].depth != NONE
    }

    /// How many messages stand above an attached one.
    #[must_use]
    pub fn depth(&self, node: Node) -> u32 {
        self.places[node.at()].depth
    }

    /// The messages directly below, the latest first.
    pub fn children(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let mut child = self.places[node.at()].first_child;
        std::iter::from_fn(move || {
            let at = (child != NONE).then_some(Node(child))?;
            child = self.places[at.at()].next_sibling;
            Some(at)
        })
    }

    /// The messages that wait below the same missing parent, the latest first.
    #[must_use]
    pub fn waiting_beside(&self, node: Node) -> Vec<Node> {
        let latest = self.missing.get(&node.0).and_then(|parent| self.waiting.get(&parent.0));
        std::iter::successors(latest.copied(), |&at| {
            let next = self.places[at as usize].next_sibling;
            (next != NONE).then_some(next)
        })
        .map(Node)
        .collect()
    }

    /// Whether messages wait below an id that no message bears.
    #[must_use]
    pub fn awaits(&self, number: Number) -> bool {
        self.waiting.contains_key(&number.0)
    }

    /// Whether no message hangs below.
    #[must_use]
    pub fn is_leaf(&self, node: Node) -> bool {
        self.places[node.at()].first_child == NONE
    }

    /// The chain of an attached message, or that of its parent with the depth to look up there.
    ///
    /// `None` for a top without children, which is on no chain.
    #[must_use]
    pub fn chain_above(&self, node: Node) -> Option<(Chain, u32)> {
        let Place { depth, chain, .. } = self.places[node.at()];
        match (chain & LEAF, chain & !LEAF) {
            (0, chain) => Some((Chain(chain), depth)),
            (_, NO_CHAIN) => None,
            (_, above) => Some((Chain(above), depth - 1)),
        }
    }

    /// The chain of a message that has one: attached, with a child.
    #[must_use]
    pub fn chain(&self, node: Node) -> Option<Chain> {
        let chain = self.places[node.at()].chain;
        (chain & LEAF == 0).then_some(Chain(chain))
    }

    /// The top of an attached message's tree. O(1).
    #[must_use]
    pub fn top(&self, node: Node) -> Node {
        self.chain_above(node).map_or(node, |(chain, _)| self.chains.top(chain))
    }

    /// Whether `a` is `b` or above it; both attached. O(log chains on the path).
    #[must_use]
    pub fn is_ancestor(&self, a: Node, b: Node) -> bool {
        if a == b {
            return true;
        }
        let (depth, Some(chain)) = (self.places[a.at()].depth, self.chain(a)) else { return false };
        match self.chain_above(b) {
            Some((below, _)) if depth < self.places[b.at()].depth => self.chains.at_depth(below, depth) == chain,
            _ => false,
        }
    }

    /// The deepest message at or above both; both attached. `None` in two trees. O(log chains).
    #[must_use]
    pub fn common_ancestor(&self, a: Node, b: Node) -> Option<Node> {
        if a == b {
            return Some(a);
        }
        let on_chain = |node: Node| if self.chain(node).is_some() { Some(node) } else { self.parent(node) };
        let (a, b) = (on_chain(a)?, on_chain(b)?);
        let (_, from_a, from_b) = self.chains.meet(self.chain(a)?, self.chain(b)?)?;
        let (a, b) = (from_a.unwrap_or(a), from_b.unwrap_or(b));
        Some(if self.places[a.at()].depth <= self.places[b.at()].depth { a } else { b })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tree of `n` messages, as the parent of each but the first.
    fn trees(n: usize) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for node in 1..n {
            all = all
                .iter()
                .flat_map(|tree: &Vec<usize>| (0..node).map(move |parent| [&tree[..], &[parent]].concat()))
                .collect();
        }
        all
    }

    fn climb(parents: &[usize], mut node: usize) -> Vec<usize> {
        let mut path = vec![node];
        while node > 0 {
            node = parents[node - 1];
            path.push(node);
        }
        path
    }

    /// The forest of a tree whose messages arrive in the given order.
    fn grow(parents: &[usize], order: &[usize]) -> (Forest, Vec<Node>) {
        let mut forest = Forest::default();
        let mut nodes: Vec<Option<Node>> = vec![None; order.len()];
        for &at in order {
            let parent = if at == 0 { Parent::Root } else { Parent::Id(Number(parents[at - 1] as u32)) };
            let above = if at == 0 { None } else { nodes[parents[at - 1]] };
            nodes[at] = Some(forest.push(Number(at as u32), parent, above, |_, _| {}));
        }
        (forest, nodes.into_iter().flatten().collect())
    }

    fn assert_agrees_with_climbing(parents: &[usize], order: &[usize]) {
        let (forest, nodes) = grow(parents, order);
        for a in 0..order.len() {
            for b in 0..order.len() {
                let (path_a, path_b) = (climb(parents, a), climb(parents, b));
                let common = *path_a.iter().find(|node| path_b.contains(node)).unwrap();
                let context = format!("{parents:?} in order {order:?}: {a}, {b}");
                assert_eq!(forest.is_ancestor(nodes[a], nodes[b]), path_b.contains(&a), "{context}");
                assert_eq!(forest.common_ancestor(nodes[a], nodes[b]), Some(nodes[common]), "{context}");
            }
        }
    }

    /// All 5,913 trees of up to eight messages, parents first and parents last.
    #[test]
    fn labels_agree_with_climbing_on_every_small_tree() {
        for n in 1..=8 {
            for parents in trees(n) {
                let order: Vec<_> = (0..n).collect();
                assert_agrees_with_climbing(&parents, &order);
                assert_agrees_with_climbing(&parents, &order.into_iter().rev().collect::<Vec<_>>());
            }
        }
    }

    /// All trees of up to five messages, in every order of arrival.
    #[test]
    fn labels_do_not_depend_on_the_order_of_arrival() {
        for n in 1..=5 {
            let mut orders = vec![vec![]];
            for _ in 0..n {
                orders = orders
                    .iter()
                    .flat_map(|order: &Vec<usize>| {
                        (0..n).filter(|at| !order.contains(at)).map(move |at| [&order[..], &[at]].concat())
                    })
                    .collect();
            }
            for parents in trees(n) {
                for order in &orders {
                    assert_agrees_with_climbing(&parents, order);
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn labels_agree_with_climbing_on_large_trees(
            bends in proptest::collection::vec((0_usize..1000, proptest::bool::weighted(0.8)), 1..80),
            seed in proptest::num::u64::ANY,
        ) {
            // Mostly a chain, with branches anywhere.
            let parents: Vec<_> = bends.iter().enumerate().map(|(at, &(to, on))| if on { at } else { to % (at + 1) }).collect();
            let mut order: Vec<_> = (0..=parents.len()).collect();
            let mut state = seed | 1;
            for at in (1..order.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                order.swap(at, (state >> 33) as usize % (at + 1));
            }
            assert_agrees_with_climbing(&parents, &order);
        }
    }

    #[test]
    fn a_circle_is_never_attached_and_never_walked() {
        let mut forest = Forest::default();
        let x = forest.push(Number(0), Parent::Id(Number(1)), None, |_, _| {});
        let y = forest.push(Number(1), Parent::Id(Number(0)), Some(x), |_, _| {});
        let z = forest.push(Number(2), Parent::Id(Number(2)), None, |_, _| {});
        for node in [x, y, z] {
            assert!(!forest.is_attached(node));
        }
        assert_eq!((forest.parent(x), forest.parent(z)), (Some(y), Some(z)));
    }
}
