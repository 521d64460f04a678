//! Questions about the tree, for people: paths, leaves, siblings, and what is not attached.
//!
//! Links that are known count even where a message above is missing; a walk
//! along them is linear and meets no message twice.

use crate::Set;
use crate::engine::Engine;
use crate::ids::{Mem, Node, Number};
use crate::topology::Above;

impl Engine {
    /// The ids of the events at positions `start..stop`, in order. O(log events + ids).
    #[must_use]
    pub fn events(&self, start: u32, stop: u32) -> Vec<Number> {
        // Each list is in the order of positions, so they are merged.
        let position = |number: Number| self.ids().seq(number).unwrap_or(u32::MAX);
        let message = |at: usize| self.ids().of_message(Node(at as u32));
        let memory = |at: usize| self.memories().number(Mem(at as u32));
        let change = |at: usize| self.changes().numbers()[at];
        let lists: [(usize, &dyn Fn(usize) -> Number); 3] = [
            (self.forest().len(), &message),
            (self.memories().len(), &memory),
            (self.changes().numbers().len(), &change),
        ];
        let first = |(len, number): (usize, &dyn Fn(usize) -> Number)| {
            let (mut low, mut high) = (0, len);
            while low < high {
                let middle = low.midpoint(high);
                if position(number(middle)) < start { low = middle + 1 } else { high = middle }
            }
            low
        };
        let mut heads = lists.map(first);
        let mut out = Vec::new();
        loop {
            let next = (0..lists.len())
                .filter(|&list| heads[list] < lists[list].0)
                .map(|list| (list, lists[list].1(heads[list])))
                .min_by_key(|&(_, number)| position(number));
            match next {
                Some((list, number)) if position(number) < stop => {
                    heads[list] += 1;
                    out.push(number);
                }
                _ => return out,
            }
        }
    }

    /// How many messages before a position are not attached. O(messages).
    #[must_use]
    pub fn orphans(&self, before: u32) -> usize {
        let nodes = (0..self.forest().len() as u32).map(Node);
        let earlier =
            nodes.take_while(|&node| self.ids().seq(self.ids().of_message(node)).is_some_and(|seq| seq < before));
        earlier.filter(|&node| !self.forest().is_attached(node)).count()
    }

    /// The path of a message, top first. Where it is broken: the id that is missing, or the
    /// message at which it comes round. O(depth).
    #[must_use]
    pub fn path(&self, node: Node) -> (Vec<Node>, Option<Number>) {
        let (mut path, mut met) = (vec![node], Set::default());
        let mut at = node;
        let broken = loop {
            if !self.forest().is_attached(at) && !met.insert(at) {
                path.pop();
                break Some(self.ids().of_message(at));
            }
            match self.forest().above(at) {
                Above::Root | Above::Legacy => break None,
                Above::Missing(number) => break Some(number),
                Above::Message(parent) => at = parent,
            }
            path.push(at);
        };
        path.reverse();
        (path, broken)
    }

    /// Whether `a` is `b` or above it, by what links are known.
    #[must_use]
    pub fn is_ancestor(&self, a: Node, b: Node) -> bool {
        match (self.forest().is_attached(a), self.forest().is_attached(b)) {
            (true, true) => self.forest().is_ancestor(a, b),
            (false, false) => self.path(b).0.contains(&a),
            _ => false,
        }
    }

    /// The deepest message at or above both, by what links are known.
    #[must_use]
    pub fn common_ancestor(&self, a: Node, b: Node) -> Option<Node> {
        match (self.forest().is_attached(a), self.forest().is_attached(b)) {
            (true, true) => self.forest().common_ancestor(a, b),
            (false, false) => {
                let above: Set<Node> = self.path(a).0.into_iter().collect();
                self.path(b).0.into_iter().rev().find(|node| above.contains(node))
            }
            _ => None,
        }
    }

    /// The messages that hang where this one does, itself included, in order of arrival.
    #[must_use]
    pub fn siblings(&self, node: Node) -> Vec<Node> {
        let mut siblings: Vec<_> = match self.forest().above(node) {
            Above::Root | Above::Legacy => self.forest().tops().to_vec(),
            Above::Message(parent) => self.forest().children(parent).collect(),
            Above::Missing(_) => self.forest().waiting_beside(node),
        };
        siblings.sort_unstable();
        siblings
    }

    /// The messages at or below these that have no child, in order of arrival. O(what hangs below).
    #[must_use]
    pub fn leaves(&self, tops: &[Node]) -> Vec<Node> {
        let (mut leaves, mut next, mut met) = (Vec::new(), tops.to_vec(), Set::default());
        while let Some(node) = next.pop() {
            // Only a circle, which is never attached, comes back to a message.
            if !self.forest().is_attached(node) && !met.insert(node) {
                continue;
            }
            if self.forest().is_leaf(node) {
                leaves.push(node);
            }
            next.extend(self.forest().children(node));
        }
        leaves.sort_unstable();
        leaves
    }
}
