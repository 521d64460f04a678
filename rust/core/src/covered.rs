//! From where on is a memory covered, given that its sources lie on the path?
//!
//! Then most of what decides whether a retraction is in effect is known beforehand: one
//! at or above the sources always is, one below them is from its place on, one on
//! another branch never. So a memory whose sources lie on one path is judged once, when
//! something changes, and a view compares a place or two. Only retractions with
//! restorations are asked each time; and what lies in other trees is left to [`crate::seen`],
//! as is all that changes again and again.

use crate::dependents::Dependents;
use crate::ids::{Mem, Node, Number};
use crate::provenance::Memories;
use crate::runs::Hanging;
use crate::topology::Forest;
use crate::{Map, Set};

/// What is known of one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covering<'a> {
    /// Nothing covers it.
    Nowhere,
    /// It is covered wherever its sources lie on the path.
    Always,
    /// It is covered from this message on.
    From(Node),
    /// It is covered from each of these messages on, of which none lies below another, and wherever one of these
    /// retractions is in effect, which have restorations.
    Mixed(&'a [Node], &'a [u32]),
    /// That is not known beforehand.
    Unknown,
}

const NOWHERE: u32 = 0;
const ALWAYS: u32 = 1;
const UNKNOWN: u32 = 2;
const STALE: u32 = 3;
/// The first place in `mixed`.
const FIRST: u32 = 4;
const PLACE: u32 = 1 << 31;

const GIVEN_UP: u8 = u8::MAX;
/// So often a memory is judged at most; in tests so seldom that small logs get there.
const MOST_TIMES: u8 = if cfg!(test) { 5 } else { 12 };

/// What is known of sixty-four memories, one bit each, side by side for those who look at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// They are covered wherever their sources lie on the path.
    pub always: u64,
    /// They may be covered here and there: their state says where.
    pub somewhere: u64,
    /// More than the messages on which they hang must be looked at.
    pub look: u64,
    /// Retractions in trees without sources of theirs cover them: views on several anchors must ask.
    pub elsewhere: u64,
}

/// Messages from which on a memory is covered, and retractions to be asked.
type Mixed = (Box<[Node]>, Box<[u32]>);

/// What is known of all memories. 5 bytes each once there is a retraction.
#[derive(Default)]
pub struct Covered {
    /// By memory, one of the above, or a place by itself.
    states: Vec<u32>,
    mixed: Vec<Mixed>,
    free: Vec<u32>,
    /// By memory divided by sixty-four.
    known: Vec<Known>,
    /// Each memory on the messages from which on it is covered. One that must be looked at may hang on others too.
    hanging: Hanging,
    hung: Set<(u32, u32)>,
    stale: Vec<Mem>,
    /// By memory, how often it was judged; `GIVEN_UP` where it is no more.
    times: Vec<u8>,
    /// Retractions by the id of their place, where it was not attached when they came.
    unplaced: Map<u32, Vec<u32>>,
}

impl Covered {
    /// What is known of a memory; in a view with one anchor and no problems, of all retractions.
    #[inline]
    #[must_use]
    pub fn of(&self, mem: Mem) -> Covering<'_> {
        match self.states.get(mem.at()) {
            None | Some(&NOWHERE) => Covering::Nowhere,
            Some(&ALWAYS) => Covering::Always,
            Some(&(UNKNOWN | STALE)) => Covering::Unknown,
            Some(&state) if state & PLACE == 0 => {
                let (from, ask) = &self.mixed[(state - FIRST) as usize];
                Covering::Mixed(from, ask)
            }
            Some(&state) => Covering::From(Node(state & !PLACE)),
        }
    }

    fn set(&mut self, mem: Mem, state: u32) {
        if self.states.len() <= mem.at() {
            self.states.resize(mem.at() + 1, NOWHERE);
        }
        let before = std::mem::replace(&mut self.states[mem.at()], state);
        if (FIRST..PLACE).contains(&before) {
            self.free.push(before - FIRST);
        }
    }

    /// Note that what covers a memory has changed, and so for all downstream. O(those not noted before).
    pub fn changed(&mut self, mem: Mem, memories: &Memories, dependents: &mut Dependents) {
        dependents.index(memories);
        let mut next = vec![mem];
        while let Some(mem) = next.pop() {
            if self.states.get(mem.at()) != Some(&STALE) && !self.is_given_up(mem) {
                self.set(mem, STALE);
                self.stale.push(mem);
                next.extend(dependents.links(memories.number(mem)));
            }
        }
    }

    /// Note a retraction whose place is not known yet.
    pub fn waits(&mut self, at: Number, retraction: u32) {
        self.unplaced.entry(at.0).or_default().push(retraction);
    }

    /// The retractions that waited for a message, which is attached now.
    pub fn placed(&mut self, at: Number) -> Vec<u32> {
        if self.unplaced.is_empty() { Vec::new() } else { self.unplaced.remove(&at.0).unwrap_or_default() }
    }

    /// Whether any memory is to be judged.
    #[must_use]
    pub fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// The memories to be judged.
    pub fn take_stale(&mut self) -> Vec<Mem> {
        std::mem::take(&mut self.stale)
    }

    /// Whether a memory is to be judged.
    #[must_use]
    pub fn is_stale(&self, mem: Mem) -> bool {
        self.states.get(mem.at()) == Some(&STALE)
    }

    /// Whether a memory was ever judged.
    #[must_use]
    pub fn is_judged(&self, mem: Mem) -> bool {
        self.times_of(mem) > 0
    }

    /// Whether a memory changed so often that it is not judged beforehand any more, or is downstream of such a one.
    #[must_use]
    pub fn is_given_up(&self, mem: Mem) -> bool {
        self.times_of(mem) == GIVEN_UP
    }

    fn times_of(&self, mem: Mem) -> u8 {
        self.times.get(mem.at()).copied().unwrap_or(0)
    }

    /// Whether a memory was judged so often that it is to be given up.
    #[must_use]
    pub fn is_restless(&self, mem: Mem) -> bool {
        self.times_of(mem) > MOST_TIMES
    }

    /// Give a memory up, with all downstream: none of them is judged again. O(these).
    pub fn give_up(&mut self, mem: Mem, memories: &Memories, dependents: &Dependents, forest: &Forest) {
        let mut next = vec![mem];
        while let Some(mem) = next.pop() {
            if !self.is_given_up(mem) {
                self.keep(mem, Covering::Unknown, true, forest);
                self.times[mem.at()] = GIVEN_UP;
                next.extend(dependents.links(memories.number(mem)));
            }
        }
    }

    /// Keep what is known of a memory now.
    pub fn keep(&mut self, mem: Mem, covering: Covering<'_>, elsewhere: bool, forest: &Forest) {
        let places = match &covering {
            Covering::Nowhere | Covering::Always | Covering::Unknown => &[][..],
            Covering::From(place) => std::slice::from_ref(place),
            Covering::Mixed(from, _) => from,
        };
        for place in places {
            if self.hung.insert((mem.0, place.0)) {
                self.hanging.push(*place, mem.0, forest);
            }
        }
        let look = match covering {
            Covering::Unknown => true,
            Covering::Mixed(_, ask) => !ask.is_empty(),
            Covering::Nowhere | Covering::Always | Covering::From(_) => false,
        };
        let state = match covering {
            Covering::Nowhere => NOWHERE,
            Covering::Always => ALWAYS,
            Covering::Unknown => UNKNOWN,
            Covering::From(place) => PLACE | place.0,
            Covering::Mixed(from, ask) => {
                let at = self.free.pop().unwrap_or(self.mixed.len() as u32);
                let mixed = (from.into(), ask.into());
                if at as usize == self.mixed.len() {
                    self.mixed.push(mixed);
                } else {
                    self.mixed[at as usize] = mixed;
                }
                FIRST + at
            }
        };
        self.set(mem, state);
        if self.times.len() <= mem.at() {
            self.times.resize(mem.at() + 1, 0);
        }
        self.times[mem.at()] = self.times[mem.at()].saturating_add(1).min(GIVEN_UP - 1);
        if self.known.len() <= mem.at() / 64 {
            self.known.resize(mem.at() / 64 + 1, Known::default());
        }
        let Known { always, somewhere, look: looks, elsewhere: others } = &mut self.known[mem.at() / 64];
        put(always, mem, state == ALWAYS);
        put(somewhere, mem, !matches!(state, NOWHERE | ALWAYS));
        put(looks, mem, look);
        put(others, mem, elsewhere);
    }

    /// What hangs where from which on it is covered, where anything does.
    #[must_use]
    pub fn hanging(&self) -> Option<&Hanging> {
        (!self.hung.is_empty()).then_some(&self.hanging)
    }

    /// A message got its first child, and so its chain.
    pub fn joined(&mut self, forest: &Forest, node: Node) {
        self.hanging.joined(forest, node);
    }

    /// What is known of all memories that were judged, and of others up to the last of them.
    #[must_use]
    pub fn known_words(&self) -> &[Known] {
        &self.known
    }

    /// Whether retractions in trees without sources of it cover a memory.
    #[must_use]
    pub fn is_elsewhere(&self, mem: Mem) -> bool {
        self.known.get(mem.at() / 64).is_some_and(|known| known.elsewhere & 1 << (mem.0 % 64) != 0)
    }
}

fn put(word: &mut u64, mem: Mem, is_in: bool) {
    let bit = 1 << (mem.0 % 64);
    if is_in { *word |= bit } else { *word &= !bit }
}
