//! Which memories are replaced, given those that are live?
//!
//! Most memories replace one other, so that versions form trees with the oldest on top.
//! There the labels of [`crate::topology`] tell what a live memory replaces: all that
//! stands above it, found by climbing chains, however many versions lie between. A family
//! in which a memory replaces several, waits for what it replaces, or goes round in a
//! circle is walked along its links instead.

use crate::bits::Bits;
use crate::chains::Chain;
use crate::circles;
use crate::ids::{Ids, Mem, Node, Number};
use crate::provenance::Memories;
use crate::skeleton::Parent;
use crate::topology::Forest;
use crate::{Map, Set};
use std::collections::VecDeque;

const NONE: u32 = u32::MAX;
/// Marks the chain of a memory that nothing replaces, which is that of what it replaces.
const LEAF: u32 = 1 << 31;

/// The chain of a memory in the forest, with how deep it stands.
#[derive(Clone, Copy)]
struct Label {
    /// `NONE` where it is on no chain.
    chain: u32,
    depth: u32,
}

/// The memories that replace others or are replaced. Takes no room for the rest; about 60 bytes for each of these, and 4 a memory.
#[derive(Default)]
pub struct Supersession {
    /// By the first memory that each one replaces.
    forest: Forest,
    mems: Vec<Mem>,
    /// By memory, `NONE` for most.
    nodes: Vec<u32>,
    /// By memory, where it stands in the forest: all that a view needs to know.
    labels: Vec<Label>,
    /// Who replaces an id beside another one.
    besides: Map<u32, Vec<Node>>,
    /// Who is in a family with whom: towards one of its members, which stands for it.
    family: Vec<u32>,
    /// Of who stands for a family, how many members it has, and how many of them must be walked; and in all families.
    size: Vec<u32>,
    unruly: Vec<u32>,
    all_unruly: usize,
    several: Set<Node>,
    replaces: Bits,
    related: Bits,
    late: Vec<Node>,
}

impl Supersession {
    /// Whether no memory names one that it replaces.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mems.is_empty()
    }

    /// The memories that name others which they replace.
    #[must_use]
    pub fn replaces(&self) -> &Bits {
        &self.replaces
    }

    /// These, and the memories that are named by them.
    #[must_use]
    pub fn related(&self) -> &Bits {
        &self.related
    }

    /// Take in the next memory, whose id bears it already. O(memories that it replaces), and for each that waited for it.
    pub fn remembered(&mut self, mem: Mem, ids: &Ids, memories: &Memories) {
        let number = memories.number(mem);
        let targets = memories.supersedes(mem);
        if targets.is_empty() {
            let awaited = !self.is_empty() && (self.forest.awaits(number) || self.besides.contains_key(&number.0));
            if awaited {
                self.push(mem, number, Parent::Root, None, 0);
            }
            return;
        }
        for target in targets.iter().filter_map(|&target| ids.memory(target)) {
            if target != mem && self.node(target).is_none() {
                self.push(target, memories.number(target), Parent::Root, None, 0);
            }
        }
        let first = targets[0];
        let above = ids.memory(first).and_then(|first| self.node(first));
        let node = self.push(mem, number, Parent::Id(first), above, targets.len());
        self.replaces.insert(mem);
        for &target in &targets[1..] {
            self.besides.entry(target.0).or_default().push(node);
        }
        let here = targets.iter().filter_map(|&target| ids.memory(target)).filter_map(|target| self.node(target));
        here.collect::<Vec<_>>().into_iter().for_each(|target| self.relate(node, target));
    }

    fn push(&mut self, mem: Mem, number: Number, parent: Parent, above: Option<Node>, targets: usize) -> Node {
        let late = &mut self.late;
        let node = self.forest.push(number, parent, above, |_, node| late.push(node));
        if targets > 1 {
            self.several.insert(node);
        }
        self.mems.push(mem);
        if self.nodes.len() <= mem.at() {
            self.nodes.resize(mem.at() + 1, NONE);
            self.labels.resize(mem.at() + 1, Label { chain: NONE, depth: 0 });
        }
        self.nodes[mem.at()] = node.0;
        self.label(node);
        above.into_iter().for_each(|above| self.label(above));
        self.related.insert(mem);
        self.family.push(node.0);
        self.size.push(1);
        let unruly = targets > 1 || !self.forest.is_attached(node);
        self.unruly.push(u32::from(unruly));
        self.all_unruly += usize::from(unruly);
        let waited: Vec<_> = self.forest.children(node).filter(|&child| child != node).collect();
        let besides = self.besides.get(&number.0).cloned().unwrap_or_default();
        waited.into_iter().chain(besides).for_each(|other| self.relate(node, other));
        for node in std::mem::take(&mut self.late) {
            self.label(node);
            self.forest.parent(node).into_iter().for_each(|above| self.label(above));
            if !self.several.contains(&node) {
                let head = self.head(node);
                self.unruly[head.at()] -= 1;
                self.all_unruly -= 1;
            }
        }
        node
    }

    /// Say where a memory stands, which changes when it is attached and when the first one replaces it.
    fn label(&mut self, node: Node) {
        if !self.forest.is_attached(node) {
            return;
        }
        let leaf = if self.forest.chain(node).is_some() { 0 } else { LEAF };
        let chain = self.forest.chain_above(node).map_or(NONE, |(chain, _)| chain.0 | leaf);
        self.labels[self.mems[node.at()].at()] = Label { chain, depth: self.forest.depth(node) };
    }

    /// Join the families of two memories.
    fn relate(&mut self, a: Node, b: Node) {
        let (a, b) = (self.head(a), self.head(b));
        if a != b {
            let (a, b) = if self.size[a.at()] <= self.size[b.at()] { (a, b) } else { (b, a) };
            self.family[a.at()] = b.0;
            self.size[b.at()] += self.size[a.at()];
            self.unruly[b.at()] += self.unruly[a.at()];
        }
    }

    /// Who stands for the family of a memory. O(log memories).
    fn head(&self, mut node: Node) -> Node {
        while self.family[node.at()] != node.0 {
            node = Node(self.family[node.at()]);
        }
        node
    }

    fn must_walk(&self, mem: Mem) -> bool {
        self.all_unruly > 0 && self.node(mem).is_some_and(|node| self.unruly[self.head(node).at()] > 0)
    }

    fn node(&self, mem: Mem) -> Option<Node> {
        self.nodes.get(mem.at()).filter(|&&node| node != NONE).map(|&node| Node(node))
    }

    /// The memories that a memory replaces in one step.
    fn below(&self, node: Node, ids: &Ids, memories: &Memories) -> impl Iterator<Item = Node> {
        let targets = memories.supersedes(self.mems[node.at()]).iter().filter_map(|&target| ids.memory(target));
        targets.filter_map(|target| self.node(target))
    }

    /// The memories that replace a memory in one step.
    fn above(&self, node: Node, memories: &Memories) -> impl Iterator<Item = Node> {
        let number = memories.number(self.mems[node.at()]);
        self.forest.children(node).chain(self.besides.get(&number.0).into_iter().flatten().copied())
    }

    /// The memories that replace a memory in any number of steps, itself aside, nearest first, found as they are asked
    /// for: O(1) each.
    pub fn replacements(&self, mem: Mem, memories: &Memories) -> impl Iterator<Item = Mem> {
        let first = self.node(mem);
        let mut met: Set<Node> = first.into_iter().collect();
        let mut next: VecDeque<Node> = VecDeque::new();
        let mut above = first.map(|node| self.above(node, memories));
        std::iter::from_fn(move || {
            loop {
                match above.as_mut()?.find(|&node| met.insert(node)) {
                    Some(node) => {
                        next.push_back(node);
                        return Some(self.mems[node.at()]);
                    }
                    None => above = next.pop_front().map(|node| self.above(node, memories)),
                }
            }
        })
    }

    /// What is replaced where these memories are live. O(these, with the chains of versions above them); in a family
    /// that must be walked, O(its links).
    #[must_use]
    pub fn replaced(&self, live: impl Iterator<Item = Mem>, ids: &Ids, memories: &Memories) -> Replaced<'_> {
        let mut out = Replaced { supersession: self, down_to: DownTo::default(), by: Map::default() };
        let mut walked = Vec::new();
        for mem in live {
            if self.must_walk(mem) {
                walked.extend(self.node(mem).map(|node| (node, node)));
            } else if let Some(&Label { chain, depth }) = self.labels.get(mem.at()).filter(|label| label.chain != NONE)
            {
                out.climb(Chain(chain & !LEAF), depth);
            }
        }
        // Two live memories that reach one are enough to know that another one than itself does.
        while let Some((node, live)) = walked.pop() {
            for below in self.below(node, ids, memories) {
                let known = out.by.get(&below).copied();
                let by = match known {
                    None => (live, None),
                    Some((first, None)) if first != live => (first, Some(live)),
                    Some(_) => continue,
                };
                out.by.insert(below, by);
                walked.push((below, live));
            }
        }
        out
    }

    /// The memories that replace each other in circles, each circle by itself. O(links).
    #[must_use]
    pub fn circles(&self, ids: &Ids, memories: &Memories) -> Vec<Vec<Mem>> {
        let edges: Vec<Vec<usize>> =
            (0..self.mems.len()).map(|at| self.below(Node(at as u32), ids, memories).map(Node::at).collect()).collect();
        let groups = circles::groups(self.mems.len(), |at, k| edges[at].get(k).copied());
        let circles = groups.into_iter().filter(|group| group.len() > 1);
        circles.map(|group| group.into_iter().map(|at| self.mems[at]).collect()).collect()
    }
}

/// A depth for each of some chains: few of them are found faster one by one.
#[derive(Default)]
struct DownTo {
    chains: Vec<(Chain, u32)>,
    /// Where they are, once they are many.
    places: Map<u32, usize>,
}

impl DownTo {
    const FEW: usize = 16;

    fn find(&self, chain: Chain) -> Option<usize> {
        if self.chains.len() <= Self::FEW {
            self.chains.iter().position(|&(known, _)| known == chain)
        } else {
            self.places.get(&chain.0).copied()
        }
    }

    fn get(&self, chain: Chain) -> Option<u32> {
        self.find(chain).map(|at| self.chains[at].1)
    }

    /// Take the greater depth, and say whether the chain was known.
    fn raise(&mut self, chain: Chain, depth: u32) -> bool {
        if let Some(at) = self.find(chain) {
            self.chains[at].1 = self.chains[at].1.max(depth);
            return true;
        }
        self.chains.push((chain, depth));
        match self.chains.len() {
            ..=Self::FEW => {}
            len if len == Self::FEW + 1 => {
                self.places.extend(self.chains.iter().zip(0..).map(|(&(chain, _), at)| (chain.0, at)));
            }
            len => _ = self.places.insert(chain.0, len - 1),
        }
        false
    }
}

/// What is replaced where some memories are live.
pub struct Replaced<'a> {
    supersession: &'a Supersession,
    /// How far down each chain of versions all is replaced: this depth and what lies deeper is not.
    down_to: DownTo,
    /// Of each memory that was walked to, one live memory that replaces it, and another one if there is any.
    by: Map<Node, (Node, Option<Node>)>,
}

impl Replaced<'_> {
    /// Whether nothing is replaced.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.down_to.chains.is_empty() && self.by.is_empty()
    }

    /// Whether a memory is replaced.
    #[must_use]
    pub fn has(&self, mem: Mem) -> bool {
        if !self.by.is_empty()
            && let Some(node) = self.supersession.node(mem)
            && let Some((first, other)) = self.by.get(&node)
        {
            return *first != node || other.is_some();
        }
        match self.supersession.labels.get(mem.at()) {
            // Nothing replaces a leaf, nor what is on no chain.
            Some(label) if label.chain & LEAF == 0 => {
                self.down_to.get(Chain(label.chain)).is_some_and(|down_to| label.depth < down_to)
            }
            _ => false,
        }
    }

    /// All is replaced above this depth of a chain, and on the chains above it.
    fn climb(&mut self, chain: Chain, depth: u32) {
        let chains = self.supersession.forest.chains();
        let mut at = Some((chain, depth));
        while let Some((chain, down_to)) = at {
            if self.down_to.raise(chain, down_to) {
                return;
            }
            at = chains.above(chain).map(|(chain, depth)| (chain, depth + 1));
        }
    }
}
