//! Is all that a memory derives from or adopts in the log, at any remove and without circles?
//!
//! A memory is *linked* when all memories that it derives from or adopts are here and
//! linked. Links never change, so a memory is linked once and for good, whatever the
//! order of arrival. The flags of what is not linked are found in one linear pass when
//! a question needs them.

use crate::circles;
use crate::ids::{Ids, Mem, Number};
use crate::reason::{MISSING_UPSTREAM, Reasons, UPSTREAM_CYCLE};
use crate::{Map, Set};

/// What is not linked. Takes no room for what is.
#[derive(Default)]
pub struct Links {
    /// How many memories each one still waits for.
    open: Map<u32, u32>,
    /// Who waits for an id.
    waiting: Map<u32, Vec<Mem>>,
    flags: Map<u32, Reasons>,
    stale: bool,
}

impl Links {
    /// Whether a memory is linked.
    #[must_use]
    pub fn is_linked(&self, mem: Mem) -> bool {
        !self.open.contains_key(&mem.0)
    }

    /// Whether [`Self::flags`] are out of date.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// `MISSING_UPSTREAM` and `UPSTREAM_CYCLE` of a memory, as of the last update.
    #[must_use]
    pub fn flags(&self, mem: Mem) -> Reasons {
        self.flags.get(&mem.0).copied().unwrap_or(0)
    }

    /// Take in a memory whose id bears it already; `linked` gets it, and what it links. `numbers` gives
    /// the number of a memory's id. O(links), and O(1) for each memory linked.
    pub fn push(
        &mut self,
        mem: Mem,
        links: impl Iterator<Item = Number>,
        ids: &Ids,
        numbers: &[Number],
        linked: &mut Vec<Mem>,
    ) {
        let mut open = 0;
        for link in links {
            if !ids.memory(link).is_some_and(|up| up != mem && self.is_linked(up)) {
                self.waiting.entry(link.0).or_default().push(mem);
                open += 1;
            }
        }
        self.stale |= open > 0 || self.waiting.contains_key(&numbers[mem.at()].0);
        if open > 0 {
            self.open.insert(mem.0, open);
            return;
        }
        let mut next = linked.len();
        linked.push(mem);
        while let Some(&mem) = linked.get(next) {
            next += 1;
            if self.waiting.is_empty() {
                break;
            }
            for down in self.waiting.remove(&numbers[mem.at()].0).unwrap_or_default() {
                let left = self.open.get_mut(&down.0).map_or(0, |left| {
                    *left -= 1;
                    *left
                });
                if left == 0 {
                    self.open.remove(&down.0);
                    self.flags.remove(&down.0);
                    linked.push(down);
                }
            }
        }
    }

    /// Bring the flags up to date. `links` gives the memories that one derives from or adopts, `None` for
    /// an id that none bears. O(what is not linked).
    pub fn update<L: Iterator<Item = Option<Mem>>>(&mut self, links: impl Fn(Mem) -> L) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut open: Vec<_> = self.open.keys().map(|&mem| Mem(mem)).collect();
        open.sort_unstable();
        let place: Map<u32, usize> = open.iter().enumerate().map(|(at, mem)| (mem.0, at)).collect();
        let mut edges = Vec::new();
        let mut ends = vec![0];
        let mut lacks = Set::default();
        for (at, &mem) in open.iter().enumerate() {
            for link in links(mem) {
                match link {
                    None => _ = lacks.insert(at),
                    Some(up) => edges.extend(place.get(&up.0).copied()),
                }
            }
            ends.push(edges.len());
        }
        let edges_of = |at: usize| &edges[ends[at]..ends[at + 1]];
        self.flags.clear();
        let mut found = vec![0; open.len()];
        for group in circles::groups(open.len(), |at, k| edges_of(at).get(k).copied()) {
            let circle = group.len() > 1 || edges_of(group[0]).contains(&group[0]);
            let mut flags = if circle { UPSTREAM_CYCLE } else { 0 };
            for &at in &group {
                flags |= if lacks.contains(&at) { MISSING_UPSTREAM } else { 0 };
                flags |= edges_of(at).iter().fold(0, |flags, &up| flags | found[up]);
            }
            for at in group {
                found[at] = flags;
                self.flags.insert(open[at].0, flags);
            }
        }
    }
}
