//! A frozen Euler tour: one comparison decides whether a message is on a path.
//!
//! Each message present at the last rebuild has a span `(start, size)` that
//! covers exactly what hangs at or below it. A later message has no span but
//! points to its nearest ancestor in the tour, which is all that is needed to
//! check a message of the tour against it. Appending touches nothing here: the
//! pointers of what came since are set when a question first needs them.
//! Rebuilding is linear and happens when a quarter more was attached and a
//! question is broad enough to gain from it.

use crate::ids::Node;
use crate::reason::{FUTURE, OTHER_TREE, Reasons, SIBLING};
use crate::spans::{NOWHERE, Span, Spans};
use crate::topology::Forest;

/// The spans of all messages. 8 bytes a message.
pub struct Tour {
    /// One for each message that was here at the last look, and a last one that stands nowhere.
    spans: Spans,
    toured: usize,
    /// Messages that another one attached since, each with the ordinal of that one, in this order.
    late: Vec<(u32, Node)>,
}

impl Default for Tour {
    fn default() -> Self {
        let mut spans = Spans::default();
        spans.grow(1);
        Self { spans, toured: 0, late: Vec::new() }
    }
}

impl Tour {
    /// Note a message that was attached when a later one, the newest of the forest, came. O(1).
    pub fn attached_late(&mut self, forest: &Forest, node: Node) {
        if self.toured > 0 {
            self.late.push((forest.len() as u32 - 1, node));
        }
    }

    /// How many messages it has looked at.
    fn seen(&self) -> usize {
        self.spans.starts().len() - 1
    }

    /// Whether it points from every message that can point into it.
    #[must_use]
    pub fn is_pointed(&self, forest: &Forest) -> bool {
        self.toured == 0 || (self.late.is_empty() && self.seen() == forest.len())
    }

    /// Set the pointers of all that was attached since it last looked. O(these).
    pub fn point(&mut self, forest: &Forest) {
        if self.is_pointed(forest) {
            return;
        }
        let from = self.seen();
        self.spans.grow(forest.len() + 1);
        let mut late = std::mem::take(&mut self.late).into_iter().peekable();
        for at in from as u32..forest.len() as u32 {
            // One that is attached by a later message is met again then.
            self.point_from(forest, Node(at));
            while let Some((_, node)) = late.next_if(|&(by, _)| by == at) {
                self.point_from(forest, node);
            }
        }
    }

    fn point_from(&mut self, forest: &Forest, node: Node) {
        let start = forest.parent(node).map_or(NOWHERE, |parent| self.span(parent).start);
        self.spans.set(node.at(), Span { start, size: 0 });
    }

    /// Whether it surely knows where a message lies, or which of its ancestors it points to: it knows
    /// nothing for sure while a message that was attached late is to be looked at.
    #[must_use]
    pub fn knows(&self, node: Node) -> bool {
        node.at() < self.seen() && self.late.is_empty()
    }

    /// Whether a quarter more was attached since the last rebuild.
    #[must_use]
    pub fn is_stale(&self, forest: &Forest) -> bool {
        forest.attached() - self.toured > self.toured / 4
    }

    /// Give every attached message its span. O(messages).
    pub fn rebuild(&mut self, forest: &Forest) {
        self.spans = Spans::default();
        self.spans.grow(forest.len() + 1);
        let mut position = 0;
        let mut open: Vec<(Node, bool)> = Vec::new();
        for &top in forest.tops() {
            open.push((top, false));
            while let Some((node, left)) = open.pop() {
                if left {
                    let start = self.span(node).start;
                    self.spans.set(node.at(), Span { start, size: position - start });
                } else {
                    self.spans.set(node.at(), Span { start: position, size: 0 });
                    position += 1;
                    open.push((node, true));
                    open.extend(forest.children(node).map(|child| (child, false)));
                }
            }
        }
        self.toured = position as usize;
        self.late.clear();
    }

    /// What is wrong with a source in the tour, by its span, at an anchor that it knows, in the tree below `top`.
    #[must_use]
    pub fn misplaced(&self, source: Span, anchor: Node, top: Node) -> Reasons {
        let anchor = self.span(anchor);
        // Nothing of the tour hangs below a later message, whose own span covers nothing.
        if source.covers(anchor.start) {
            0
        } else if !self.span(top).covers(source.start) {
            OTHER_TREE
        } else if anchor.covers(source.start) {
            FUTURE
        } else {
            SIBLING
        }
    }

    /// Where a message lies in the tour; for a later one its nearest ancestor there. O(1) for one that
    /// it knows, else O(messages above it since the rebuild).
    #[must_use]
    pub fn position(&self, forest: &Forest, node: Node) -> u32 {
        let mut at = Some(node);
        while let Some(node) = at {
            let span = self.span(node);
            if span.size > 0 || self.knows(node) {
                return span.start;
            }
            at = forest.parent(node);
        }
        NOWHERE
    }

    /// The position of every message that it has looked at, by ordinal; for a later one that of its
    /// nearest ancestor. A last one stands nowhere.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        self.spans.starts()
    }

    /// The span of a message; it covers nothing where the message is not in the tour.
    #[must_use]
    pub fn span(&self, node: Node) -> Span {
        if node.at() < self.seen() { self.spans.get(node.at()) } else { Span::NEVER }
    }

    /// Whether `a` is `b` or above it; both attached. One comparison where `a` is in the tour and `b` known to it.
    #[must_use]
    pub fn is_ancestor(&self, forest: &Forest, a: Node, b: Node) -> bool {
        let outer = self.span(a);
        if outer.size > 0 && self.knows(b) { outer.covers(self.span(b).start) } else { forest.is_ancestor(a, b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Number;
    use crate::skeleton::Parent;

    /// Every tree of up to six messages in every order of arrival that hangs children below what
    /// comes later, the tour frozen after each prefix and looked at after another, against chain labels.
    #[test]
    fn the_tour_agrees_with_chain_labels_wherever_it_was_frozen() {
        let mut trees: Vec<Vec<u32>> = vec![vec![]];
        for n in 1..6 {
            trees = trees.iter().flat_map(|tree| (0..n).map(move |parent| [&tree[..], &[parent]].concat())).collect();
            for parents in &trees {
                for frozen in 0..=parents.len() {
                    for pointed in frozen..=parents.len() + 1 {
                        for turn in 0..=parents.len() as u32 {
                            assert_agrees(parents, frozen, pointed, turn);
                        }
                    }
                }
            }
        }
    }

    /// The messages come in the order of their numbers from `turn` on, then those before it.
    fn assert_agrees(parents: &[u32], frozen: usize, pointed: usize, turn: u32) {
        let (mut forest, mut tour) = (Forest::default(), Tour::default());
        let count = parents.len() as u32 + 1;
        let place = |number: u32| Node((number + count - turn) % count);
        for at in 0..count {
            let number = (at + turn) % count;
            let parent = number.checked_sub(1).map(|child| parents[child as usize]);
            let above = parent.map_or(Parent::Root, |parent| Parent::Id(Number(parent)));
            let here = parent.map(place).filter(|node| node.0 < at);
            let mut late = Vec::new();
            forest.push(Number(number), above, here, |_, node| late.push(node));
            late.into_iter().for_each(|node| tour.attached_late(&forest, node));
            if at as usize == frozen {
                tour.rebuild(&forest);
            }
            if at as usize == pointed {
                tour.point(&forest);
            }
        }
        for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (Node(a), Node(b)))) {
            let expected = forest.is_ancestor(a, b);
            let context = format!("{parents:?} frozen {frozen} pointed {pointed} turn {turn}: {a:?} {b:?}");
            assert_eq!(tour.is_ancestor(&forest, a, b), expected, "{context}");
            let position = tour.position(&forest, b);
            assert!(tour.span(a).size == 0 || tour.span(a).covers(position) == expected, "{context}");
        }
    }
}
