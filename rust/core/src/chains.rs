//! Chain labels: is one message an ancestor of another, without relabelling.
//!
//! A chat is a long chain with short branches. Every attached message with a
//! child belongs to one chain at one depth; a chain hangs below a message of
//! another chain. A leaf joins a chain only when it gets its first child, so
//! that regenerating at the tip again and again breaks no chain. Appending is
//! O(1), a label is given once, and a check climbs chains, not messages:
//! O(log chains on the path), by skew-binary jump pointers (Myers, "An applicative
//! random-access stack", Information Processing Letters 17, 1983).

use crate::ids::Node;

/// One chain, by its place in [`Chains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain(pub u32);

impl Chain {
    /// The place in an array of one entry a chain.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

struct Link {
    /// The chain that this one hangs on; its own at the top of a tree.
    above: u32,
    /// The message that it hangs below; at the top of a tree its first message.
    attach: Node,
    /// The depth of its first message.
    start: u32,
    /// How many chains stand above it.
    level: u32,
    /// A chain far above it, or itself at the top.
    jump: u32,
    /// The top of the tree.
    top: Node,
    /// Its last message: the only one that another may follow.
    tail: Node,
}

/// All chains of the forest.
#[derive(Default)]
pub struct Chains {
    links: Vec<Link>,
}

impl Chains {
    /// How many chains there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Open the chain of the top of a tree. O(1).
    pub fn open(&mut self, top: Node) -> Chain {
        let at = self.links.len() as u32;
        self.links.push(Link { above: at, attach: top, start: 0, level: 0, jump: at, top, tail: top });
        Chain(at)
    }

    /// Give a message its chain: its parent's where it is the first to follow there, else a new one. O(1).
    #[inline]
    pub fn join(&mut self, node: Node, depth: u32, parent: Node, above: Chain) -> Chain {
        let link = &mut self.links[above.at()];
        if link.tail == parent {
            link.tail = node;
            return above;
        }
        let (level, top, jump) = (link.level + 1, link.top, link.jump);
        let (near, far) = (&self.links[above.at()], &self.links[jump as usize]);
        let even = near.level - far.level == far.level - self.links[far.jump as usize].level;
        let jump = if even { far.jump } else { above.0 };
        let at = self.links.len() as u32;
        self.links.push(Link { above: above.0, attach: parent, start: depth, level, jump, top, tail: node });
        Chain(at)
    }

    /// The top of the tree that a chain lies in.
    #[must_use]
    pub fn top(&self, chain: Chain) -> Node {
        self.links[chain.at()].top
    }

    /// The chain above, with the depth that this one hangs below; `None` at the top.
    #[must_use]
    pub fn above(&self, chain: Chain) -> Option<(Chain, u32)> {
        let link = &self.links[chain.at()];
        (link.above != chain.0).then(|| (Chain(link.above), link.start - 1))
    }

    /// The chain that the way up from `chain` is on at `depth`. O(log chains).
    #[must_use]
    pub fn at_depth(&self, chain: Chain, depth: u32) -> Chain {
        let mut at = chain.0;
        while self.links[at as usize].start > depth {
            let jump = self.links[at as usize].jump;
            at = if self.links[jump as usize].start > depth { jump } else { self.links[at as usize].above };
        }
        Chain(at)
    }

    /// The chain where the ways up from two meet, and the message at which each comes to it
    /// (`None`: it started there). `None` in two trees. O(log chains).
    #[must_use]
    pub fn meet(&self, a: Chain, b: Chain) -> Option<(Chain, Option<Node>, Option<Node>)> {
        if self.top(a) != self.top(b) {
            return None;
        }
        let (mut x, mut y) = (a.0, b.0);
        let level = |at: u32| self.links[at as usize].level;
        let common = level(x).min(level(y));
        let (mut x_from, mut y_from) = (None, None);
        self.lift(&mut x, &mut x_from, common);
        self.lift(&mut y, &mut y_from, common);
        while x != y {
            let (jx, jy) = (self.links[x as usize].jump, self.links[y as usize].jump);
            if jx == jy {
                x_from = Some(x);
                y_from = Some(y);
                (x, y) = (self.links[x as usize].above, self.links[y as usize].above);
            } else {
                (x, y) = (jx, jy);
            }
        }
        let comes_at = |from: Option<u32>| from.map(|at| self.links[at as usize].attach);
        Some((Chain(x), comes_at(x_from), comes_at(y_from)))
    }

    /// Climb to a level, remembering the last chain below it.
    fn lift(&self, at: &mut u32, from: &mut Option<u32>, level: u32) {
        while self.links[*at as usize].level > level {
            let link = &self.links[*at as usize];
            if self.links[link.jump as usize].level > level {
                *at = link.jump;
            } else {
                *from = Some(*at);
                *at = link.above;
            }
        }
    }
}
