//! What later events changed about memories: retracted, erased, replaced.
//!
//! All of it is kept by events, as they come; what is in effect is asked for each view.

use crate::cover::Cover;
use crate::covered::Covered;
use crate::dependents::Dependents;
use crate::encode::{self, RetractionFields};
use crate::erasure::Erasures;
use crate::ids::{Ids, Mem, Number};
use crate::provenance::Memories;
use crate::retraction::{Retractions, placed};
use crate::skeleton::{Block, Scope, Skeleton};
use crate::supersession::Supersession;
use crate::topology::Forest;

/// One of these events, by its place among those of its type.
#[derive(Clone, Copy)]
enum Change {
    Retraction(u32),
    Restoration(u32),
    Erasure(u32),
}

/// All events that are neither messages nor memories, and what follows from them and from `supersedes`.
#[derive(Default)]
pub struct Changes {
    /// Retractions and restorations.
    pub retractions: Retractions,
    /// What retractions cover.
    pub cover: Cover,
    /// From where on each memory is covered, where that is known beforehand.
    pub covered: Covered,
    /// Erasures.
    pub erasures: Erasures,
    /// Which memories replace which.
    pub supersession: Supersession,
    /// Which memories refer to an id.
    pub dependents: Dependents,
    /// Retractions that are to be judged.
    added: Vec<u32>,
    events: Vec<Change>,
    numbers: Vec<Number>,
}

impl Changes {
    /// The ids of all events that are neither messages nor memories, in the order of the log.
    #[must_use]
    pub fn numbers(&self) -> &[Number] {
        &self.numbers
    }

    /// Whether no event of a log takes anything from what its sources show.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.supersession.is_empty()
    }

    /// Take in a retraction, whose id bears it already. O(what it covers), and once for all O(references).
    pub fn push_retraction(
        &mut self,
        skeleton: &Skeleton<'_>,
        block: &Block<'_>,
        ids: &Ids,
        forest: &Forest,
        memories: &mut Memories,
    ) {
        let place = self.retractions.push(skeleton, block, memories);
        self.note(skeleton.id, Change::Retraction(place));
        let retraction = &self.retractions.all()[place as usize];
        if !ids.message(retraction.at).is_some_and(|node| forest.is_attached(node)) {
            self.covered.waits(retraction.at, place);
        }
        self.cover.retracted(place, retraction, ids, forest, memories, &mut self.dependents);
        self.added.push(place);
    }

    /// Take in a restoration, whose id bears it already. O(what the retraction that it names covers), O(1) for
    /// all but the first of one.
    pub fn push_restoration(&mut self, skeleton: &Skeleton<'_>, block: &Block<'_>, ids: &Ids, memories: &Memories) {
        self.note(skeleton.id, Change::Restoration(self.retractions.restorations().len() as u32));
        if let Some(retraction) = self.retractions.push_restoration(skeleton, block)
            && self.retractions.all()[retraction as usize].restorations.len() == 1
        {
            // From now on the retraction is asked each time, and so are all restorations that follow.
            self.rejudge(retraction, ids, memories);
        }
    }

    /// Take in an erasure, whose id bears it already. O(what it takes), and once for all O(references).
    pub fn push_erasure(&mut self, skeleton: &Skeleton<'_>, block: &Block<'_>, ids: &Ids, memories: &Memories) {
        self.note(skeleton.id, Change::Erasure(self.erasures.all().len() as u32));
        self.erasures.push(skeleton, block, ids, memories, &mut self.dependents);
    }

    fn note(&mut self, number: Number, change: Change) {
        self.events.push(change);
        self.numbers.push(number);
    }

    /// Judge anew what a retraction covers.
    fn rejudge(&mut self, retraction: u32, ids: &Ids, memories: &Memories) {
        let retraction = &self.retractions.all()[retraction as usize];
        let by_id = Cover::named_by_id(retraction, ids, memories, &mut self.dependents);
        let by_key = retraction.keys.iter().flat_map(|&key| memories.keys().all(key));
        for mem in by_id.into_iter().chain(by_key) {
            self.covered.changed(mem, memories, &mut self.dependents);
        }
    }

    /// A message is now attached. O(what is covered by retractions that waited for it).
    pub fn attached(&mut self, number: Number, ids: &Ids, memories: &Memories) {
        for retraction in self.covered.placed(number) {
            self.rejudge(retraction, ids, memories);
        }
    }

    /// A memory is now settled.
    pub fn settled(&mut self, mem: Mem, memories: &Memories) {
        if self.cover.may_cover(mem) {
            self.covered.changed(mem, memories, &mut self.dependents);
        }
    }

    /// What is to be judged after a block was taken in: retractions that came, each with the memories that it names by
    /// an id; memories that changed are noted in [`Self::covered`].
    pub fn take_added(&mut self, ids: &Ids, memories: &Memories) -> Vec<(u32, Vec<Mem>)> {
        for mem in self.cover.take_came() {
            self.covered.changed(mem, memories, &mut self.dependents);
        }
        let added = std::mem::take(&mut self.added);
        let named = added.into_iter().map(|place| {
            let retraction = &self.retractions.all()[place as usize];
            (place, Cover::named_by_id(retraction, ids, memories, &mut self.dependents))
        });
        named.collect()
    }

    /// Take in the next memory, whose id bears it already.
    pub fn remembered(&mut self, mem: Mem, ids: &Ids, memories: &Memories) {
        self.cover.remembered(mem, ids, memories, &mut self.dependents);
        self.erasures.remembered(mem, ids, memories, &mut self.dependents);
        self.supersession.remembered(mem, ids, memories);
    }

    /// The canonical skeleton of one of these events, in its string form.
    #[must_use]
    pub fn skeleton(&self, at: u32, ids: &Ids, memories: &Memories) -> Vec<u8> {
        let id = ids.name(self.numbers[at as usize]);
        let names = |numbers: &[Number]| numbers.iter().map(|&number| ids.name(number)).collect::<Vec<_>>();
        match self.events[at as usize] {
            Change::Erasure(place) => {
                let erasure = &self.erasures.all()[place as usize];
                encode::erasure_skeleton(id, &names(&erasure.targets), erasure.alone)
            }
            Change::Restoration(place) => {
                let restoration = &self.retractions.restorations()[place as usize];
                let (at, retraction) = (ids.name(restoration.at), ids.name(restoration.retraction));
                encode::restoration_skeleton(id, at, restoration.scope, retraction)
            }
            Change::Retraction(place) => {
                let retraction = &self.retractions.all()[place as usize];
                let keys: Vec<_> = retraction.keys.iter().map(|&key| memories.words().text(key)).collect();
                let fields = RetractionFields {
                    at: ids.name(retraction.at),
                    scope: retraction.scope,
                    memories: &names(&retraction.memories),
                    sources: &names(&retraction.sources),
                    keys: &keys,
                    standing: retraction.standing,
                };
                encode::retraction_skeleton(id, &fields)
            }
        }
    }

    /// Whether anything may withhold a memory: its content is gone, or some retraction covers it.
    #[inline]
    #[must_use]
    pub fn may_withhold(&self, mem: Mem) -> bool {
        self.cover.may_cover(mem) || self.erasures.erased().has(mem)
    }

    /// The retractions and restorations whose place is not known, though their scope asks for one.
    #[must_use]
    pub fn unplaced(&self, ids: &Ids, forest: &Forest) -> Vec<Number> {
        let is_unplaced = |change: &Change| match *change {
            Change::Retraction(place) => self.retractions.all()[place as usize].is_unplaced(ids, forest),
            Change::Restoration(place) => {
                let restoration = &self.retractions.restorations()[place as usize];
                restoration.scope != Scope::Everywhere && placed(restoration.at, ids, forest).is_none()
            }
            Change::Erasure(_) => false,
        };
        let events = self.events.iter().zip(&self.numbers);
        events.filter(|(event, _)| is_unplaced(event)).map(|(_, &number)| number).collect()
    }
}
