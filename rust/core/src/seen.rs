//! Which retractions are in effect in a view, and which memories do they cover there?
//!
//! It fails closed: a retraction whose place cannot be judged is in effect, a
//! restoration whose place cannot be judged is not.

use crate::covered::Covering;
use crate::event::Scope;
use crate::facts::Facts;
use crate::ids::{Mem, Node};
use crate::reason::{ERASED, LEGACY_SOURCE, RETRACTED, Reasons};
use crate::retraction::{Restoration, Retraction, judged, placed};
use crate::shape::Shape;
use crate::stand::Stand;
use crate::{Map, Set};

/// So many retractions are asked again sooner than the answer is looked up.
const QUICK: usize = 4;

/// Whether a retraction is in effect in a view, and no restoration of it is. O(its restorations).
#[must_use]
pub fn is_in_effect(place: u32, stand: &Stand, facts: Facts<'_>) -> bool {
    let retraction = &facts.retractions().all()[place as usize];
    let restorations = facts.retractions().restorations();
    takes(retraction, stand, facts)
        && !retraction.restorations.iter().any(|&at| lifts(&restorations[at as usize], stand, facts))
}

fn takes(retraction: &Retraction, stand: &Stand, facts: Facts<'_>) -> bool {
    let Some(node) = judged(retraction, facts.ids, facts.forest) else { return true };
    match stand.anchor_beside(facts.forest, node) {
        None => stand.problems() != 0,
        Some(_) if retraction.scope == Scope::Tree => true,
        Some(anchor) => facts.tour.is_ancestor(facts.forest, node, anchor),
    }
}

fn lifts(restoration: &Restoration, stand: &Stand, facts: Facts<'_>) -> bool {
    if restoration.scope == Scope::Everywhere {
        return true;
    }
    let Some(node) = placed(restoration.at, facts.ids, facts.forest) else { return false };
    match stand.anchor_beside(facts.forest, node) {
        None => false,
        Some(_) if restoration.scope == Scope::Tree => true,
        Some(anchor) => facts.tour.is_ancestor(facts.forest, node, anchor),
    }
}

/// Every retraction in effect that covers a memory, each once, in order. O(what it derives from and adopts).
#[must_use]
pub fn covering(mem: Mem, stand: &Stand, facts: Facts<'_>) -> Vec<u32> {
    let in_effect = |&place: &u32| is_in_effect(place, stand, facts);
    let mut out: Vec<u32> = holders_above(mem, facts, |holder, out: &mut Vec<u32>| {
        out.extend(facts.cover().direct(holder).iter().copied().filter(in_effect));
        let keyed = facts.cover().keyed(holder, facts.memories).into_iter().flat_map(|keyed| &keyed.all).copied();
        out.extend(keyed.filter(|place| in_effect(place) && !is_fresh(holder, *place, facts)));
        false
    });
    out.sort_unstable();
    out.dedup();
    out
}

/// Whether a retraction that no restoration names covers a memory, and is in effect in every view in which
/// its sources lie on the path. O(all that it derives from and adopts).
#[must_use]
pub fn is_lasting(mem: Mem, facts: Facts<'_>) -> bool {
    let Facts { ids, forest, tour, memories, .. } = facts;
    let reach = std::iter::once(mem).chain(facts.all_upstreams(mem));
    let sources = reach.flat_map(|mem| memories.sources(mem)).filter_map(|&source| ids.message(source));
    let sources: Vec<_> = sources.filter(|&node| forest.is_attached(node)).collect();
    let lasts = |&place: &u32| {
        let retraction = &facts.retractions().all()[place as usize];
        let holds = |node: Node| {
            sources.iter().any(|&source| match retraction.scope {
                Scope::Tree => forest.top(source) == forest.top(node),
                Scope::Branch | Scope::Everywhere => tour.is_ancestor(forest, node, source),
            })
        };
        retraction.restorations.is_empty() && judged(retraction, ids, forest).is_none_or(holds)
    };
    holders_above(mem, facts, |holder, out: &mut bool| {
        let by_key = |place: &u32| lasts(place) && !is_fresh(holder, *place, facts);
        let keyed = facts.cover().keyed(holder, memories);
        *out =
            facts.cover().direct(holder).iter().any(lasts) || keyed.is_some_and(|keyed| keyed.all.iter().any(by_key));
        *out
    })
}

/// Visit the holders of a memory and of all upstream, each once, until `visit` says that it is enough.
fn holders_above<T: Default>(mem: Mem, facts: Facts<'_>, mut visit: impl FnMut(Mem, &mut T) -> bool) -> T {
    let mut out = T::default();
    let (mut next, mut met) = (Vec::from_iter(facts.cover().holder_of(mem)), Set::default());
    while let Some(holder) = next.pop() {
        if met.insert(holder) {
            if visit(holder, &mut out) {
                break;
            }
            let up = facts.memories.links(holder).filter_map(|link| facts.ids.memory(link));
            next.extend(up.filter_map(|up| facts.cover().holder_of(up)));
        }
    }
    out
}

/// Whether a memory is stated afresh below the place of a retraction: it has effective sources, and all lie strictly
/// below. O(1) for settled sources on one path, else O(what it derives from).
#[must_use]
pub fn is_fresh(mem: Mem, place: u32, facts: Facts<'_>) -> bool {
    let retraction = &facts.retractions().all()[place as usize];
    let at = facts.ids.message(retraction.at).filter(|&node| facts.forest.is_attached(node));
    !retraction.standing && at.is_some_and(|at| lies_below(mem, at, facts))
}

fn lies_below(mem: Mem, at: Node, facts: Facts<'_>) -> bool {
    let Facts { ids, forest, tour, memories, .. } = facts;
    if memories.is_settled(mem) {
        match memories.shape(mem) {
            _ if memories.flags(mem) & LEGACY_SOURCE != 0 => return false,
            Shape::Home(home) => {
                return forest.depth(at) < memories.least_depth(mem) && tour.is_ancestor(forest, at, home);
            }
            Shape::Nowhere | Shape::Several(_) => return false,
            Shape::Wide | Shape::Fork => {}
        }
    }
    let (mut sourced, mut next, mut met) = (false, vec![mem], Set::from_iter([mem]));
    while let Some(mem) = next.pop() {
        for &source in memories.sources(mem) {
            sourced = true;
            let below = |node: Node| node != at && tour.is_ancestor(forest, at, node);
            if !placed(source, ids, forest).is_some_and(below) {
                return false;
            }
        }
        next.extend(facts.upstreams(mem).filter(|&up| met.insert(up)));
    }
    sourced
}

/// What the retractions in effect leave of a key.
#[derive(Clone, Copy)]
enum Left {
    /// None is in effect.
    All,
    /// What is stated afresh below all of them, of which this is the deepest place.
    Below(Node),
    /// Nothing.
    Nothing,
}

/// The covers of one view, each holder judged once.
pub struct Seen<'a> {
    stand: &'a Stand,
    facts: Facts<'a>,
    holders: Map<u32, bool>,
    keys: Map<u32, Left>,
}

impl<'a> Seen<'a> {
    /// Nothing is judged yet.
    #[must_use]
    pub fn new(stand: &'a Stand, facts: Facts<'a>) -> Self {
        Self { stand, facts, holders: Map::default(), keys: Map::default() }
    }

    /// Whether a retraction in effect covers a memory.
    pub fn is_covered(&mut self, mem: Mem) -> bool {
        self.facts.cover().holder_of(mem).is_some_and(|holder| self.is_held(holder))
    }

    fn is_held(&mut self, first: Mem) -> bool {
        if let Some(known) = self.known(first) {
            return known;
        }
        let held = self.is_named(first);
        // What is judged faster than it is looked up is not kept.
        let links = self.facts.memories.links(first);
        let is_quick = || self.facts.cover().direct(first).len() <= QUICK;
        if (held || links.count() == 0) && is_quick() {
            return held;
        }
        let (held, met) = if held { (true, Set::default()) } else { self.is_held_above(first) };
        if held {
            self.holders.insert(first.0, true);
        } else {
            // Nothing above it is held, so nothing above those that were met is.
            self.holders.extend(met.into_iter().map(|holder| (holder.0, false)));
        }
        held
    }

    fn known(&self, holder: Mem) -> Option<bool> {
        if self.holders.is_empty() { None } else { self.holders.get(&holder.0).copied() }
    }

    /// Whether a holder upstream of one that is not named is held; and all that were looked at, this one among them.
    fn is_held_above(&mut self, first: Mem) -> (bool, Set<Mem>) {
        let facts = self.facts;
        let above = |holder: Mem| {
            let up = facts.memories.links(holder).filter_map(move |link| facts.ids.memory(link));
            up.filter_map(move |up| facts.cover().holder_of(up))
        };
        let mut met = Set::from_iter([first]);
        let mut next: Vec<_> = above(first).collect();
        while let Some(holder) = next.pop() {
            if !met.insert(holder) {
                continue;
            }
            match self.known(holder) {
                Some(true) => return (true, met),
                Some(false) => {}
                None if self.is_named(holder) => return (true, met),
                None => next.extend(above(holder)),
            }
        }
        (false, met)
    }

    /// Whether a retraction in effect names a holder itself, or its key.
    fn is_named(&mut self, holder: Mem) -> bool {
        let Facts { memories, .. } = self.facts;
        let direct = self.facts.cover().direct(holder);
        if direct.iter().any(|&place| is_in_effect(place, self.stand, self.facts)) {
            return true;
        }
        if self.facts.cover().keyed(holder, memories).is_none() {
            return false;
        }
        let Some(key) = memories.keys().get(holder) else { return false };
        match self.left_of(key, holder) {
            Left::All => false,
            Left::Nothing => true,
            Left::Below(at) => !lies_below(holder, at, self.facts),
        }
    }

    fn left_of(&mut self, key: u32, holder: Mem) -> Left {
        if let Some(&left) = self.keys.get(&key) {
            return left;
        }
        let left = self.find_left(holder);
        self.keys.insert(key, left);
        left
    }

    /// O(retractions of the key that are in no tree, or in one in which the view stands; of all where it has problems).
    fn find_left(&self, holder: Mem) -> Left {
        let Facts { ids, forest, tour, memories, .. } = self.facts;
        let Some(keyed) = self.facts.cover().keyed(holder, memories) else { return Left::All };
        let retractions = self.facts.retractions();
        let mut left = Left::All;
        let mut add = |place: &u32| {
            if !is_in_effect(*place, self.stand, self.facts) {
                return;
            }
            let retraction = &retractions.all()[*place as usize];
            let at = ids.message(retraction.at).filter(|&at| !retraction.standing && forest.is_attached(at));
            left = match (left, at) {
                (Left::All, Some(at)) => Left::Below(at),
                (Left::Below(before), Some(at)) if tour.is_ancestor(forest, before, at) => Left::Below(at),
                (Left::Below(before), Some(at)) if tour.is_ancestor(forest, at, before) => Left::Below(before),
                // Nothing lies below two that lie side by side.
                _ => Left::Nothing,
            };
        };
        if self.stand.problems() != 0 {
            keyed.all.iter().for_each(add);
            return left;
        }
        keyed.anywhere.iter().for_each(&mut add);
        for anchor in self.stand.anchors() {
            keyed.by_tree.get(&forest.top(anchor).0).into_iter().flatten().for_each(&mut add);
        }
        left
    }
}

/// ERASED and RETRACTED, where a memory is so in a view.
#[must_use]
pub fn withheld(mem: Mem, seen: &mut Seen<'_>) -> Reasons {
    let changes = seen.facts.changes;
    let erased = if changes.erasures.erased().has(mem) { ERASED } else { 0 };
    let retracted = if changes.cover.may_cover(mem) && seen.is_covered(mem) { RETRACTED } else { 0 };
    erased | retracted
}

/// The same of a memory whose sources all lie on the path.
#[must_use]
pub fn withheld_on_path(mem: Mem, seen: &mut Seen<'_>) -> Reasons {
    let (changes, stand, facts) = (seen.facts.changes, seen.stand, seen.facts);
    let erased = if changes.erasures.erased().has(mem) { ERASED } else { 0 };
    if !changes.cover.may_cover(mem) {
        return erased;
    }
    let from = |&place: &Node| stand.is_on_path(facts, place);
    let known = match changes.covered.of(mem) {
        Covering::Unknown => return erased | if seen.is_covered(mem) { RETRACTED } else { 0 },
        Covering::Nowhere => false,
        Covering::Always => true,
        Covering::From(place) => from(&place),
        Covering::Mixed(places, ask) => {
            places.iter().any(from) || ask.iter().any(|&retraction| is_in_effect(retraction, stand, facts))
        }
    };
    // Other trees matter only to views that stand there too, or cannot.
    let asks = changes.covered.is_elsewhere(mem) && stand.only_anchor().is_none();
    if known || (asks && seen.is_covered(mem)) { erased | RETRACTED } else { erased }
}

/// All reasons of a memory of the log but SUPERSEDED. O(1) for sources on one path, else O(what it derives
/// from); where a retraction may cover it, O(the holders above it and what names these).
#[must_use]
pub fn reasons(mem: Mem, stand: &Stand, facts: Facts<'_>) -> Reasons {
    let sources = stand.reasons_of_sources(mem, facts);
    if !facts.changes.may_withhold(mem) {
        return sources;
    }
    let mut seen = Seen::new(stand, facts);
    if sources == 0 { withheld_on_path(mem, &mut seen) } else { sources | withheld(mem, &mut seen) }
}
