//! Which ids are at fault, for each reason: the slow, whole answer.
//!
//! Found from the events themselves, not from the reduction that decides
//! visibility, so the two can be held against each other.

use crate::circles;
use crate::facts::Facts;
use crate::ids::{Mem, Number};
use crate::provenance::Memories;
use crate::reason::{
    DETACHED_SOURCE, ERASED, LEGACY_SOURCE, MISSING_SOURCE, MISSING_UPSTREAM, NO_SOURCES, RETRACTED, Reasons, SIBLING,
    UPSTREAM_CYCLE,
};
use crate::seen::covering;
use crate::stand::Stand;
use crate::{Map, Set};

/// All reasons of a memory at an anchor, with the ids at fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The reasons.
    pub reasons: Reasons,
    /// A reason and an id at fault, in no order, each once.
    pub culprits: Vec<(Reasons, Number)>,
    /// A source on a sibling, and the message of the path where its branch parts.
    pub parted: Vec<(Number, Number)>,
    /// The memories that it derives from and that are replaced: no reason, but a warning.
    pub superseded_upstream: Vec<Number>,
}

impl Explanation {
    pub(crate) fn blame(&mut self, reason: Reasons, number: Number) {
        self.reasons |= reason;
        self.culprits.push((reason, number));
    }
}

/// Explain a memory of the log, SUPERSEDED aside. O(all that it derives from, with their sources), without recursion.
///
/// Problems of the view are among the reasons, without culprits: the caller knows the anchors.
#[must_use]
pub fn explain(mem: Mem, stand: &Stand, facts: Facts<'_>) -> Explanation {
    let Facts { ids, forest, memories, .. } = facts;
    let mut out = Explanation::default();
    let reach = Reach::from(mem, |mem| facts.upstreams(mem));
    let sources: Set<Number> = reach.memories.iter().flat_map(|&mem| memories.sources(mem)).copied().collect();
    reach.without_sources(memories).for_each(|mem| out.blame(NO_SOURCES, memories.number(mem)));
    let linked = Reach::from(mem, |mem| memories.links(mem).filter_map(|link| ids.memory(link)));
    let missing: Set<Number> = linked.memories.iter().flat_map(|&mem| memories.links(mem)).collect();
    let missing = missing.into_iter().filter(|&number| ids.memory(number).is_none());
    missing.for_each(|number| out.blame(MISSING_UPSTREAM, number));
    linked.on_circles().into_iter().for_each(|mem| out.blame(UPSTREAM_CYCLE, memories.number(mem)));
    for number in sources {
        match ids.message(number) {
            None => out.blame(MISSING_SOURCE, number),
            Some(node) if forest.is_legacy(node) => out.blame(LEGACY_SOURCE, number),
            Some(node) if !forest.is_attached(node) => out.blame(DETACHED_SOURCE, number),
            Some(node) if stand.is_usable() => {
                let misplaced = stand.misplaced(facts, node);
                if misplaced == 0 {
                    continue;
                }
                out.blame(misplaced, number);
                if misplaced == SIBLING {
                    let anchor = stand.anchor_beside(forest, node);
                    let at = anchor.and_then(|anchor| forest.common_ancestor(node, anchor));
                    out.parted.extend(at.map(|at| (number, ids.of_message(at))));
                }
            }
            Some(_) => {}
        }
    }
    if facts.changes.erasures.erased().has(mem) {
        out.blame(ERASED, memories.number(mem));
    }
    for place in covering(mem, stand, facts) {
        out.blame(RETRACTED, facts.retractions().all()[place as usize].number);
    }
    out.reasons = if stand.is_usable() { stand.with_problems(out.reasons) } else { out.reasons | stand.problems() };
    out
}

/// A memory and all memories that it derives from at any remove, or that it is linked to.
struct Reach {
    memories: Vec<Mem>,
    /// Of each, the places of those it derives from.
    edges: Vec<Vec<usize>>,
}

impl Reach {
    fn from<U: Iterator<Item = Mem>>(mem: Mem, up: impl Fn(Mem) -> U) -> Self {
        let mut out = Self { memories: vec![mem], edges: Vec::new() };
        let mut place = Map::from_iter([(mem, 0)]);
        let mut at = 0;
        while at < out.memories.len() {
            let edges = up(out.memories[at]).map(|up| {
                *place.entry(up).or_insert_with(|| {
                    out.memories.push(up);
                    out.memories.len() - 1
                })
            });
            let edges = edges.collect();
            out.edges.push(edges);
            at += 1;
        }
        out
    }

    /// The memories that have no effective source.
    fn without_sources(&self, memories: &Memories) -> impl Iterator<Item = Mem> {
        let mut downstream = vec![Vec::new(); self.memories.len()];
        for (at, edges) in self.edges.iter().enumerate() {
            edges.iter().for_each(|&up| downstream[up].push(at));
        }
        let mut sourced: Vec<_> = self.memories.iter().map(|&mem| !memories.sources(mem).is_empty()).collect();
        let mut next: Vec<_> = (0..sourced.len()).filter(|&at| sourced[at]).collect();
        while let Some(at) = next.pop() {
            for &down in &downstream[at] {
                if !std::mem::replace(&mut sourced[down], true) {
                    next.push(down);
                }
            }
        }
        self.memories.iter().zip(sourced).filter(|(_, sourced)| !sourced).map(|(&mem, _)| mem)
    }

    /// The memories that derive from themselves.
    fn on_circles(&self) -> Vec<Mem> {
        let groups = circles::groups(self.memories.len(), |at, k| self.edges[at].get(k).copied());
        let circles = groups.into_iter().filter(|group| group.len() > 1 || self.edges[group[0]].contains(&group[0]));
        circles.flatten().map(|at| self.memories[at]).collect()
    }
}
