//! Judging beforehand from where on a memory is covered.

use crate::Set;
use crate::covered::{Covered, Covering};
use crate::facts::Facts;
use crate::ids::{Mem, Node};
use crate::retraction::judged;
use crate::seen::is_fresh;
use crate::shape::Shape;
use crate::skeleton::Scope;

/// So many places, and so many retractions to be asked, are kept for one memory at most.
const MOST: usize = 8;

/// Judge all memories for which something has changed. O(these, with what covers each).
pub fn judge_stale(covered: &mut Covered, facts: Facts<'_>) {
    let mut next = covered.take_stale();
    while let Some(mem) = next.pop() {
        if !covered.is_stale(mem) {
            continue;
        }
        let simple = is_simple(mem, facts);
        if simple {
            // Upstreams first; those of a memory that is settled run in no circle.
            let waits: Vec<_> = facts.upstreams(mem).filter(|&up| covered.is_stale(up)).collect();
            if !waits.is_empty() {
                next.push(mem);
                next.extend(waits);
                continue;
            }
        }
        let found = if simple { found(mem, covered, facts) } else { Found::unknown() };
        keep(mem, &found, covered, facts);
    }
}

/// Keep what was found, unless the memory was judged too often, or one that it derives from or adopts was.
fn keep(mem: Mem, found: &Found, covered: &mut Covered, facts: Facts<'_>) {
    let Facts { ids, forest, memories, changes, .. } = facts;
    let mut links = memories.links(mem).filter_map(|link| ids.memory(link));
    if covered.is_restless(mem) || links.any(|up| covered.is_given_up(up)) {
        covered.give_up(mem, memories, &changes.dependents, forest);
    } else {
        covered.keep(mem, found.covering(), found.elsewhere, forest);
    }
}

/// Add a retraction that came to what is known; `named` are the memories that it names by an id. O(what it covers for
/// the first time, or otherwise than what covers it already).
pub fn judge_added(covered: &mut Covered, retraction: u32, named: &[Mem], facts: Facts<'_>) {
    let told = &facts.retractions().all()[retraction as usize];
    let place = judged(told, facts.ids, facts.forest).map(|node| (node, facts.forest.top(node)));
    let by_key = told.keys.iter().flat_map(|&key| facts.memories.keys().all(key));
    let is_above = |a: Node, b: Node| facts.tour.is_ancestor(facts.forest, a, b);
    // A key may have many memories, to most of which one more in another tree or on another branch adds nothing.
    let is_new = |mem: &Mem| match (covered.of(*mem), facts.memories.shape(*mem), place) {
        (Covering::Always | Covering::Unknown, ..) => false,
        (_, Shape::Home(home), Some((_, top))) if top != facts.forest.top(home) => !covered.is_elsewhere(*mem),
        (before, Shape::Home(home), Some((node, _))) if told.scope == Scope::Branch && covered.is_judged(*mem) => {
            let is_known = || matches!(before, Covering::From(from) if is_above(from, node));
            is_above(node, home) || is_above(home, node) && !is_known()
        }
        _ => true,
    };
    let stated = |mem: &Mem| !facts.memories.is_settled(*mem) || !is_fresh(*mem, retraction, facts);
    let mut next: Vec<_> = named.iter().copied().chain(by_key.filter(is_new).filter(stated)).collect();
    let (mut met, mut lost) = (Set::default(), Vec::new());
    while let Some(mem) = next.pop() {
        if !met.insert(mem) || covered.is_given_up(mem) {
            continue;
        }
        let before = covered.of(mem);
        let found = match facts.memories.shape(mem) {
            Shape::Home(home) if is_simple(mem, facts) => {
                let mut found = Found::of(before, covered.is_elsewhere(mem));
                found.add_retraction(retraction, home, facts);
                found.limit();
                found
            }
            _ => Found::unknown(),
        };
        let same = found.covering() == before && found.elsewhere == covered.is_elsewhere(mem);
        // What adds nothing here adds nothing downstream.
        if same && covered.is_judged(mem) {
            continue;
        }
        keep(mem, &found, covered, facts);
        if covered.of(mem) == Covering::Unknown {
            lost.push(mem);
        }
        next.extend(facts.changes.dependents.links(facts.memories.number(mem)));
    }
    lose(covered, lost, facts);
}

/// Let what is downstream of memories of which nothing is known beforehand not be known either: what is added to these
/// ends there, though it may matter to one that has its sources elsewhere. O(what was known).
fn lose(covered: &mut Covered, mut next: Vec<Mem>, facts: Facts<'_>) {
    while let Some(mem) = next.pop() {
        for down in facts.changes.dependents.links(facts.memories.number(mem)) {
            if !matches!(covered.of(down), Covering::Always | Covering::Unknown) {
                covered.keep(down, Covering::Unknown, true, facts.forest);
                next.push(down);
            }
        }
    }
}

fn found(mem: Mem, covered: &Covered, facts: Facts<'_>) -> Found {
    let mut out = Found::default();
    let Shape::Home(home) = facts.memories.shape(mem) else { return Found::unknown() };
    for &place in facts.cover().direct(mem) {
        out.add_retraction(place, home, facts);
    }
    if let Some(keyed) = facts.cover().keyed(mem, facts.memories) {
        let here = keyed.by_tree.get(&facts.forest.top(home).0);
        let near = keyed.anywhere.iter().chain(here.into_iter().flatten());
        near.filter(|&&place| !is_fresh(mem, place, facts)).for_each(|&place| out.add_retraction(place, home, facts));
        // In another tree nothing is stated afresh.
        out.elsewhere |= keyed.by_tree.len() > usize::from(here.is_some());
    }
    for up in facts.upstreams(mem) {
        match covered.of(up) {
            Covering::Nowhere => {}
            Covering::Always => out.always = true,
            Covering::Unknown => out.unknown = true,
            Covering::From(place) => out.add(place, home, facts),
            Covering::Mixed(places, ask) => {
                places.iter().for_each(|&place| out.add(place, home, facts));
                ask.iter().for_each(|&retraction| out.add_retraction(retraction, home, facts));
            }
        }
        out.elsewhere |= covered.is_elsewhere(up);
    }
    out.limit();
    out
}

/// Whether a memory can be judged beforehand: its sources lie on one path, for good, and it adopts nothing covered.
fn is_simple(mem: Mem, facts: Facts<'_>) -> bool {
    let adopted = facts.memories.adopts(mem).and_then(|adopted| facts.ids.memory(adopted));
    facts.memories.is_settled(mem)
        && facts.memories.flags(mem) == 0
        && matches!(facts.memories.shape(mem), Shape::Home(_))
        && !adopted.is_some_and(|adopted| facts.cover().may_cover(adopted))
}

/// What was found of one memory.
#[derive(Default)]
struct Found {
    places: Vec<Node>,
    /// Retractions with restorations.
    ask: Vec<u32>,
    always: bool,
    elsewhere: bool,
    unknown: bool,
}

impl Found {
    fn unknown() -> Self {
        Self { unknown: true, elsewhere: true, ..Self::default() }
    }

    fn of(covering: Covering<'_>, elsewhere: bool) -> Self {
        let (places, ask) = match covering {
            Covering::From(place) => (vec![place], Vec::new()),
            Covering::Mixed(places, ask) => (places.to_vec(), ask.to_vec()),
            Covering::Nowhere | Covering::Always | Covering::Unknown => Default::default(),
        };
        let (always, unknown) = (covering == Covering::Always, covering == Covering::Unknown);
        Self { places, ask, always, elsewhere, unknown }
    }

    fn covering(&self) -> Covering<'_> {
        match (&self.places[..], &self.ask[..]) {
            _ if self.always => Covering::Always,
            _ if self.unknown => Covering::Unknown,
            ([], []) => Covering::Nowhere,
            ([place], []) => Covering::From(*place),
            (places, ask) => Covering::Mixed(places, ask),
        }
    }

    fn limit(&mut self) {
        self.unknown |= self.places.len() > MOST || self.ask.len() > MOST;
    }

    fn add_retraction(&mut self, number: u32, home: Node, facts: Facts<'_>) {
        let retraction = &facts.retractions().all()[number as usize];
        let place = judged(retraction, facts.ids, facts.forest);
        if place.is_some_and(|node| facts.forest.top(node) != facts.forest.top(home)) {
            self.elsewhere = true;
        } else if !retraction.restorations.is_empty() {
            if !self.ask.contains(&number) {
                self.ask.push(number);
            }
        } else {
            match place {
                Some(node) if retraction.scope == Scope::Branch => self.add(node, home, facts),
                _ => self.always = true,
            }
        }
    }

    /// Add a message of the tree from which on it is covered.
    fn add(&mut self, place: Node, home: Node, facts: Facts<'_>) {
        let is_above = |a: Node, b: Node| facts.tour.is_ancestor(facts.forest, a, b);
        if is_above(place, home) {
            self.always = true;
        } else if is_above(home, place) && !self.places.iter().any(|&known| is_above(known, place)) {
            self.places.retain(|&known| !is_above(place, known));
            self.places.push(place);
        }
    }
}
