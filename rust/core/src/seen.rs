//! Which retractions are in effect in a view, and which memories do they cover there?
//!
//! It fails closed: a retraction whose place cannot be judged is in effect, a
//! restoration whose place cannot be judged is not.

use crate::bits::Bits;
use crate::covered::Covering;
use crate::facts::Facts;
use crate::ids::{Mem, Node};
use crate::reason::{ERASED, LEGACY_SOURCE, RETRACTED, Reasons};
use crate::retraction::{Restoration, Retraction, judged, placed};
use crate::shape::Shape;
use crate::skeleton::Scope;
use crate::stand::Stand;
use crate::{Map, Set};

/// So many retractions or restorations are asked again sooner than the answer is looked up.
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

/// The memories that a retraction without restorations covers in every view in which their sources lie on the path.
///
/// O(covered memories), and where more was not known beforehand, for each message that is the deepest source of some,
/// what covers these; for forks and wide memories, all that each derives from and adopts. Flags and shapes must be up to
/// date.
#[must_use]
pub fn lasting(facts: Facts<'_>) -> Bits {
    let mut out = Bits::default();
    let mut unknown = Vec::new();
    for mem in facts.cover().covered().iter() {
        let shape = facts.memories.shape(mem);
        match (facts.changes.covered.of(mem), shape) {
            (Covering::Unknown, Shape::Wide | Shape::Fork) => out.put(mem, is_lasting(mem, facts)),
            (Covering::Unknown, _) => unknown.push((facts.memories.homes(&shape).to_vec(), mem)),
            (known, _) => out.put(mem, known == Covering::Always),
        }
    }
    unknown.sort_unstable();
    for alike in unknown.chunk_by(|a, b| a.0 == b.0) {
        // What is in effect at the sources themselves is so wherever they lie on the path.
        let stand = Stand::on(&alike[0].0, facts.forest);
        let mut seen = Seen::new(&stand, facts);
        let lifted = (0..).zip(facts.retractions().all()).filter(|(_, retraction)| !retraction.restorations.is_empty());
        seen.in_effect.extend(lifted.map(|(place, _)| (place, false)));
        alike.iter().for_each(|&(_, mem)| out.put(mem, seen.is_covered(mem)));
    }
    out
}

/// The same of one memory, by each of its sources. O(all that it derives from and adopts).
pub(crate) fn is_lasting(mem: Mem, facts: Facts<'_>) -> bool {
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

/// The holders directly above one.
fn above(holder: Mem, facts: Facts<'_>) -> impl Iterator<Item = Mem> {
    let up = facts.memories.links(holder).filter_map(move |link| facts.ids.memory(link));
    up.filter_map(move |up| facts.cover().holder_of(up))
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
            next.extend(above(holder, facts));
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
    /// Whether retractions with restorations are in effect.
    in_effect: Map<u32, bool>,
}

impl<'a> Seen<'a> {
    /// Nothing is judged yet.
    #[must_use]
    pub fn new(stand: &'a Stand, facts: Facts<'a>) -> Self {
        Self { stand, facts, holders: Map::default(), keys: Map::default(), in_effect: Map::default() }
    }

    fn is_in_effect(&mut self, place: u32) -> bool {
        let (stand, facts) = (self.stand, self.facts);
        if !self.in_effect.is_empty()
            && let Some(&known) = self.in_effect.get(&place)
        {
            return known;
        }
        let in_effect = is_in_effect(place, stand, facts);
        if facts.retractions().all()[place as usize].restorations.len() > QUICK {
            self.in_effect.insert(place, in_effect);
        }
        in_effect
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
        // Most often what stands above was judged before.
        let mut above = above(first, self.facts);
        let known =
            if held { Some(true) } else { above.try_fold(false, |held, above| Some(held | self.known(above)?)) };
        if let Some(held) = known {
            self.holders.insert(first.0, held);
            return held;
        }
        self.look_above(first);
        self.known(first) == Some(true)
    }

    fn known(&self, holder: Mem) -> Option<bool> {
        if self.holders.is_empty() { None } else { self.holders.get(&holder.0).copied() }
    }

    /// Judge a holder that is not named, with those upstream of it as far up as it takes: each once in a view.
    fn look_above(&mut self, first: Mem) {
        let facts = self.facts;
        let mut met = Set::from_iter([first]);
        let (mut next, mut held) = (vec![first], Vec::new());
        let mut below: Map<Mem, Vec<Mem>> = Map::default();
        while let Some(holder) = next.pop() {
            for above in above(holder, facts) {
                match self.known(above) {
                    Some(false) => continue,
                    Some(true) => held.push(above),
                    None if met.insert(above) => {
                        if self.is_named(above) {
                            held.push(above);
                        } else {
                            next.push(above);
                        }
                    }
                    None => {}
                }
                below.entry(above).or_default().push(holder);
            }
        }
        self.holders.extend(met.into_iter().map(|holder| (holder.0, false)));
        while let Some(holder) = held.pop() {
            self.holders.insert(holder.0, true);
            let below = below.remove(&holder).into_iter().flatten();
            held.extend(below.filter(|below| self.known(*below) == Some(false)));
        }
    }

    /// Whether a retraction in effect names a holder itself, or its key.
    fn is_named(&mut self, holder: Mem) -> bool {
        let Facts { memories, .. } = self.facts;
        let direct = self.facts.cover().direct(holder);
        if direct.iter().any(|&place| self.is_in_effect(place)) {
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
    fn find_left(&mut self, holder: Mem) -> Left {
        let Facts { ids, forest, tour, memories, .. } = self.facts;
        let Some(keyed) = self.facts.cover().keyed(holder, memories) else { return Left::All };
        let (stand, retractions) = (self.stand, self.facts.retractions());
        let mut left = Left::All;
        let mut add = |place: &u32| {
            if !self.is_in_effect(*place) {
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
        if stand.problems() != 0 {
            keyed.all.iter().for_each(add);
            return left;
        }
        keyed.anywhere.iter().for_each(&mut add);
        if keyed.by_tree.len() < stand.anchors().len() {
            let here = keyed.by_tree.iter().filter(|(top, _)| stand.anchor_beside(forest, Node(**top)).is_some());
            here.flat_map(|(_, places)| places).for_each(add);
        } else {
            for anchor in stand.anchors() {
                keyed.by_tree.get(&forest.top(anchor).0).into_iter().flatten().for_each(&mut add);
            }
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
            places.iter().any(from) || ask.iter().any(|&retraction| seen.is_in_effect(retraction))
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
