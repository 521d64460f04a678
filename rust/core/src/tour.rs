//! A frozen Euler tour: one comparison decides whether a message is on a path.
//!
//! Each message present at the last rebuild has a span `(start, size)` that
//! covers exactly what hangs at or below it. A later message has no span but
//! points to its nearest ancestor in the tour, which is all that is needed to
//! check a message of the tour against it. Rebuilding is linear and happens
//! when a quarter more was attached and a question is broad enough to gain from
//! it.

use crate::ids::Node;
use crate::reason::{FUTURE, OTHER_TREE, Reasons, SIBLING};
use crate::spans::{NOWHERE, Span, Spans};
use crate::topology::Forest;

/// The spans of all messages. 8 bytes a message.
pub struct Tour {
    /// One for each message, and a last one that stands nowhere.
    spans: Spans,
    toured: usize,
    /// Attached since.
    later: usize,
}

impl Default for Tour {
    fn default() -> Self {
        let mut spans = Spans::default();
        spans.grow(1);
        Self { spans, toured: 0, later: 0 }
    }
}

impl Tour {
    /// Take in a message that was attached after the last rebuild. O(1).
    pub fn attached(&mut self, forest: &Forest, node: Node) {
        self.spans.grow(forest.len() + 1);
        let start = forest.parent(node).map_or(NOWHERE, |parent| self.span(parent).start);
        self.spans.set(node.at(), Span { start, size: 0 });
        self.later += 1;
    }

    /// Keep room for a message that is not attached.
    pub fn detached(&mut self, forest: &Forest) {
        self.spans.grow(forest.len() + 1);
    }

    /// Whether a quarter more was attached since the last rebuild.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.later > self.toured / 4
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
        self.later = 0;
    }

    /// What is wrong with a source in the tour, by its span, at an anchor in the tree below `top`.
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

    /// The position of every message, by ordinal; for a later one that of its nearest ancestor. A
    /// last one stands nowhere.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        self.spans.starts()
    }

    /// The span of a message.
    #[must_use]
    pub fn span(&self, node: Node) -> Span {
        self.spans.get(node.at())
    }

    /// Whether `a` is `b` or above it; both attached. One comparison where `a` is in the tour.
    #[must_use]
    pub fn is_ancestor(&self, forest: &Forest, a: Node, b: Node) -> bool {
        let outer = self.span(a);
        if outer.size > 0 { outer.covers(self.span(b).start) } else { forest.is_ancestor(a, b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Parent;
    use crate::ids::Number;

    /// Every tree of up to seven messages, the tour frozen after each prefix, against chain labels.
    #[test]
    fn the_tour_agrees_with_chain_labels_wherever_it_was_frozen() {
        let mut trees: Vec<Vec<u32>> = vec![vec![]];
        for n in 1..7 {
            trees = trees.iter().flat_map(|tree| (0..n).map(move |parent| [&tree[..], &[parent]].concat())).collect();
            for parents in &trees {
                for frozen in 0..=parents.len() {
                    let (mut forest, mut tour) = (Forest::default(), Tour::default());
                    for at in 0..=parents.len() as u32 {
                        let parent = at.checked_sub(1).map(|child| parents[child as usize]);
                        let above = parent.map_or(Parent::Root, |parent| Parent::Id(Number(parent)));
                        forest.push(Number(at), above, parent.map(Node), |forest, node| tour.attached(forest, node));
                        if at as usize == frozen {
                            tour.rebuild(&forest);
                        }
                    }
                    for a in 0..=parents.len() as u32 {
                        for b in 0..=parents.len() as u32 {
                            let expected = forest.is_ancestor(Node(a), Node(b));
                            assert_eq!(
                                tour.is_ancestor(&forest, Node(a), Node(b)),
                                expected,
                                "{parents:?} {frozen} {a} {b}"
                            );
                        }
                    }
                }
            }
        }
    }
}
