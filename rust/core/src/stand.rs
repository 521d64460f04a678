//! Where a view stands, and what is wrong with a source as seen from there.

use crate::Set;
use crate::facts::Facts;
use crate::ids::{Ids, Mem, Node, Number};
use crate::reason::{DETACHED_ANCHOR, FUTURE, NO_ANCHOR, OTHER_TREE, PLACED, Reasons, SIBLING, UNKNOWN_ANCHOR};
use crate::shape::Shape;
use crate::spans::NOWHERE;
use crate::topology::Forest;
use crate::tour::Tour;

/// Two anchors of one view lie in one tree: their places in the list, and its top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// The earlier one.
    pub first: usize,
    /// The later one.
    pub second: usize,
    /// The top of their tree.
    pub top: Node,
}

/// The usable anchors of a view, one a tree, and what is wrong with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    /// Top of the tree and anchor, sorted by top.
    anchors: Vec<(Node, Node)>,
    /// Bits 0 to 2.
    problems: Reasons,
    /// The places of the anchors that cannot be used, each with its problem.
    unusable: Vec<(usize, Reasons)>,
}

impl Stand {
    /// Look anchors up; `None` stands for an id that was never mentioned. O(anchors · log anchors).
    ///
    /// # Errors
    /// [`Ambiguous`] where two different ones lie in one tree.
    pub fn new(anchors: &[Option<Number>], ids: &Ids, forest: &Forest) -> Result<Self, Ambiguous> {
        let mut stand = Self { anchors: Vec::with_capacity(anchors.len()), ..Self::default() };
        if anchors.is_empty() {
            stand.problems = NO_ANCHOR;
        }
        for (place, anchor) in anchors.iter().enumerate() {
            let problem = match anchor.and_then(|number| ids.message(number)) {
                None => UNKNOWN_ANCHOR,
                Some(node) if !forest.is_attached(node) => DETACHED_ANCHOR,
                Some(node) => {
                    stand.anchors.push((forest.top(node), node));
                    continue;
                }
            };
            stand.problems |= problem;
            stand.unusable.push((place, problem));
        }
        if stand.anchors.len() > 1 {
            stand.anchors.sort_unstable();
            stand.anchors.dedup();
            if let Some(pair) = stand.anchors.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let place = |node: Node| {
                    let number = Some(ids.of_message(node));
                    anchors.iter().position(|&anchor| anchor == number).unwrap_or(0)
                };
                let (a, b) = (place(pair[0].1), place(pair[1].1));
                return Err(Ambiguous { first: a.min(b), second: a.max(b), top: pair[0].0 });
            }
        }
        Ok(stand)
    }

    /// Where the first anchor lies in the tour: views that stand near each other walk the same chains.
    #[must_use]
    pub fn position(&self, forest: &Forest, tour: &Tour) -> u32 {
        self.anchors.first().map_or(NOWHERE, |&(_, anchor)| tour.position(forest, anchor))
    }

    /// On one message that may be attached or not. O(1).
    #[must_use]
    pub fn at(node: Option<Node>, forest: &Forest) -> Self {
        match node {
            None => Self { problems: UNKNOWN_ANCHOR, ..Self::default() },
            Some(node) if !forest.is_attached(node) => Self { problems: DETACHED_ANCHOR, ..Self::default() },
            Some(node) => Self { anchors: vec![(forest.top(node), node)], ..Self::default() },
        }
    }

    /// On some attached messages, one a tree.
    #[must_use]
    pub fn on(nodes: &[Node], forest: &Forest) -> Self {
        let mut anchors: Vec<_> = nodes.iter().map(|&node| (forest.top(node), node)).collect();
        anchors.sort_unstable();
        Self { anchors, ..Self::default() }
    }

    /// What is wrong with the anchors: bits 0 to 2.
    #[must_use]
    pub fn problems(&self) -> Reasons {
        self.problems
    }

    /// The places of the anchors that cannot be used in the list that was asked for, each with its problem.
    #[must_use]
    pub fn unusable(&self) -> &[(usize, Reasons)] {
        &self.unusable
    }

    /// The usable anchors.
    #[must_use]
    pub fn anchors(&self) -> impl ExactSizeIterator<Item = Node> + '_ {
        self.anchors.iter().map(|&(_, anchor)| anchor)
    }

    /// The only anchor with the top of its tree, where there is one anchor and nothing wrong with it.
    #[must_use]
    pub fn only_anchor(&self) -> Option<(Node, Node)> {
        match &self.anchors[..] {
            [only] if self.problems == 0 => Some(*only),
            _ => None,
        }
    }

    /// Whether any anchor is usable.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// The usable anchor in the tree of an attached message.
    #[must_use]
    pub fn anchor_beside(&self, forest: &Forest, node: Node) -> Option<Node> {
        let top = forest.top(node);
        match &self.anchors[..] {
            [(only, anchor)] => (*only == top).then_some(*anchor),
            anchors => anchors.binary_search_by_key(&top, |&(top, _)| top).ok().map(|at| anchors[at].1),
        }
    }

    /// Whether an attached message lies on the path.
    #[must_use]
    pub fn is_on_path(&self, facts: Facts<'_>, node: Node) -> bool {
        match &self.anchors[..] {
            [(_, anchor)] => facts.tour.is_ancestor(facts.forest, node, *anchor),
            _ => self
                .anchor_beside(facts.forest, node)
                .is_some_and(|anchor| facts.tour.is_ancestor(facts.forest, node, anchor)),
        }
    }

    /// What is wrong with an attached source that is no legacy message: bits 11 to 13, or nothing.
    #[must_use]
    pub fn misplaced(&self, facts: Facts<'_>, node: Node) -> Reasons {
        match self.anchor_beside(facts.forest, node) {
            None => OTHER_TREE,
            Some(anchor) if facts.tour.is_ancestor(facts.forest, node, anchor) => 0,
            Some(anchor) if facts.tour.is_ancestor(facts.forest, anchor, node) => FUTURE,
            Some(_) => SIBLING,
        }
    }

    /// The flags of a memory of the log, and what its sources have against the view. O(1) for sources on one path,
    /// else O(what it derives from).
    #[must_use]
    pub fn reasons_of_sources(&self, mem: Mem, facts: Facts<'_>) -> Reasons {
        let flags = facts.memories.flags(mem);
        if !self.is_usable() {
            return flags | self.problems;
        }
        let shape = facts.memories.shape(mem);
        let misplaced = match shape {
            Shape::Wide | Shape::Fork => self.misplaced_at_any_remove(mem, facts),
            _ => self.misplaced_homes(facts.memories.homes(&shape), facts),
        };
        self.with_problems(flags | misplaced)
    }

    /// Problems of the view are reasons of what an unusable anchor might have shown.
    #[must_use]
    pub fn with_problems(&self, reasons: Reasons) -> Reasons {
        if reasons & OTHER_TREE != 0 { reasons | self.problems } else { reasons }
    }

    /// What is wrong with any of these messages.
    #[must_use]
    pub fn misplaced_homes(&self, homes: &[Node], facts: Facts<'_>) -> Reasons {
        homes.iter().fold(0, |out, &home| out | self.misplaced(facts, home))
    }

    /// What is wrong with the sources that a memory names itself.
    #[must_use]
    pub fn misplaced_own(&self, mem: Mem, facts: Facts<'_>) -> Reasons {
        let placed = facts.memories.sources(mem).iter().filter_map(|&source| facts.ids.message(source));
        placed
            .filter(|&node| facts.forest.is_attached(node) && !facts.forest.is_legacy(node))
            .fold(0, |out, node| out | self.misplaced(facts, node))
    }

    fn misplaced_at_any_remove(&self, mem: Mem, facts: Facts<'_>) -> Reasons {
        let (mut out, mut next, mut met) = (0, vec![mem], Set::from_iter([mem]));
        while let Some(mem) = next.pop() {
            if out == PLACED {
                break;
            }
            let shape = facts.memories.shape(mem);
            if !matches!(shape, Shape::Wide | Shape::Fork) {
                out |= self.misplaced_homes(facts.memories.homes(&shape), facts);
                continue;
            }
            out |= self.misplaced_own(mem, facts);
            next.extend(facts.upstreams(mem).filter(|&up| met.insert(up)));
        }
        out
    }
}
