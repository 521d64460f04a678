//! Where the sources of a memory lie, in 32 bits.

use crate::ids::Node;
use crate::topology::Forest;

/// The most trees that a reduction holds the deepest source of: what is wide needs more anchors.
pub const MAX_TREES: usize = 8;

/// Where the effective sources of a memory lie, legacy and detached ones aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// There are none.
    Nowhere,
    /// On one path, down to this message.
    Home(Node),
    /// On one path in each of a few trees: see `Memories::homes`.
    Several(u32),
    /// In more trees than a reduction holds.
    Wide,
    /// On two branches of one tree.
    Fork,
}

/// A shape as it is kept: ordinals take 30 bits, the other two say what they are of.
#[derive(Clone, Copy)]
pub struct Packed(u32);

const SEVERAL: u32 = 1 << 30;
const OTHER: u32 = 2 << 30;

impl Packed {
    /// In 32 bits.
    #[must_use]
    pub fn of(shape: Shape) -> Self {
        Self(match shape {
            Shape::Home(node) => node.0,
            Shape::Several(at) => SEVERAL | at,
            Shape::Nowhere => OTHER,
            Shape::Wide => OTHER | 1,
            Shape::Fork => OTHER | 2,
        })
    }

    /// As it was.
    #[must_use]
    pub fn shape(self) -> Shape {
        let low = self.0 & (SEVERAL - 1);
        match (self.0 & !(SEVERAL - 1), low) {
            (0, _) => Shape::Home(Node(low)),
            (SEVERAL, _) => Shape::Several(low),
            (_, 0) => Shape::Nowhere,
            (_, 1) => Shape::Wide,
            _ => Shape::Fork,
        }
    }
}

/// The reduction of a set of sources.
#[derive(Default)]
pub struct Reduction {
    /// The deepest in each tree.
    pub homes: Vec<Node>,
    /// Whether they lie in more trees than are held.
    pub wide: bool,
    /// Whether they lie on two branches of one tree.
    pub fork: bool,
    /// The least depth of any; where there are none, beyond all.
    pub least: Option<u32>,
}

impl Reduction {
    /// Add an attached source. O(log chains).
    pub fn add(&mut self, forest: &Forest, node: Node) {
        self.reach(forest.depth(node));
        let top = forest.top(node);
        match self.homes.iter().position(|&home| forest.top(home) == top) {
            Some(at) if forest.is_ancestor(self.homes[at], node) => self.homes[at] = node,
            Some(at) => self.fork |= !forest.is_ancestor(node, self.homes[at]),
            None if self.homes.len() < MAX_TREES => self.homes.push(node),
            None => self.wide = true,
        }
    }

    /// Note that a source lies at a depth.
    pub fn reach(&mut self, depth: u32) {
        self.least = Some(self.least.map_or(depth, |least| least.min(depth)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_kept_as_it_was() {
        for ordinal in [0, 1, SEVERAL - 1] {
            for shape in [Shape::Home(Node(ordinal)), Shape::Several(ordinal), Shape::Nowhere, Shape::Wide, Shape::Fork]
            {
                assert_eq!(Packed::of(shape).shape(), shape);
            }
        }
    }
}
