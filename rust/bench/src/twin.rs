//! The bare twin: chain labels and nothing else.
//!
//! The opponent of the engine's topology. Eight bytes a message: no ids, no
//! children, no tour, no message that waits for its parent. A leaf carries
//! the chain of its parent, and gets one of its own with its first child.

use crate::shapes::ROOT;

/// Marks the label of a leaf, whose chain is that of its parent.
const LEAF: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Label {
    chain: u32,
    depth: u32,
}

struct Chain {
    /// The chain that it hangs on; its own at the top of a tree.
    above: u32,
    /// A chain far above it.
    jump: u32,
    /// How many chains stand above it.
    level: u32,
    /// The depth of its first message.
    start: u32,
    /// The depth of its last message.
    end: u32,
}

/// All labels.
#[derive(Default)]
pub struct Twin {
    labels: Vec<Label>,
    chains: Vec<Chain>,
}

impl Twin {
    /// Take in the next message. O(1).
    pub fn push(&mut self, parent: u32) {
        let label = if parent == ROOT {
            Label { chain: LEAF, depth: 0 }
        } else {
            Label { chain: self.chain(parent) | LEAF, depth: self.labels[parent as usize].depth + 1 }
        };
        self.labels.push(label);
    }

    /// The chain of a message that gets a child.
    fn chain(&mut self, node: u32) -> u32 {
        let Label { chain, depth } = self.labels[node as usize];
        if chain & LEAF == 0 {
            return chain;
        }
        let chain = self.joined(chain & !LEAF, depth);
        self.labels[node as usize].chain = chain;
        chain
    }

    /// The chain above where the message is the first to follow there, else a new one.
    fn joined(&mut self, above: u32, depth: u32) -> u32 {
        let chain = self.chains.len() as u32;
        if depth == 0 {
            self.chains.push(Chain { above: chain, jump: chain, level: 0, start: 0, end: 0 });
            return chain;
        }
        let near = &mut self.chains[above as usize];
        if near.end + 1 == depth {
            near.end = depth;
            return above;
        }
        let (level, jump) = (near.level, near.jump);
        let far = &self.chains[jump as usize];
        let even = level - far.level == far.level - self.chains[far.jump as usize].level;
        let jump = if even { far.jump } else { above };
        self.chains.push(Chain { above, jump, level: level + 1, start: depth, end: depth });
        chain
    }

    /// Whether `a` is `b` or above it. O(log chains on the path).
    pub fn is_ancestor(&self, a: u32, b: u32) -> bool {
        let (outer, inner) = (self.labels[a as usize], self.labels[b as usize]);
        if a == b || outer.chain & LEAF != 0 || outer.depth >= inner.depth {
            return a == b;
        }
        let mut at = inner.chain & !LEAF;
        while self.chains[at as usize].start > outer.depth {
            let jump = self.chains[at as usize].jump;
            at = if self.chains[jump as usize].start > outer.depth { jump } else { self.chains[at as usize].above };
        }
        at == outer.chain
    }
}
