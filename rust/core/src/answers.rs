//! What is visible, one by one, in bulk and pairwise.
//!
//! A question about one memory is decided where its sources lie. A question
//! about all of them starts from what hangs on the path, and then looks only at
//! what a policy may let through beyond it.

use crate::engine::Engine;
use crate::explain::{self, Explanation};
use crate::ids::{Mem, Node, Number};
use crate::reason::{
    Admitted, ERASED, LEGACY_SOURCE, OTHER_TREE, PLACED, RETRACTED, Reasons, SIBLING, SUPERSEDED, UNKNOWN_MEMORY,
};
use crate::seen::{Seen, lasting, reasons, withheld};
use crate::shape::{MAX_TREES, Shape};
use crate::spans::covers_each;
use crate::stand::{Ambiguous, Stand};
use crate::visible::{Answer, Visible};
use crate::{Map, Set};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

impl Engine {
    /// Where a view on these anchors stands; `None` is an id that was never mentioned.
    ///
    /// # Errors
    /// [`Ambiguous`] where two lie in one tree.
    pub fn stand(&self, anchors: &[Option<Number>]) -> Result<Stand, Ambiguous> {
        Stand::new(anchors, self.ids(), self.forest())
    }

    /// All reasons of a memory but SUPERSEDED; `None` is one that is not in the log. Needs [`Self::is_current`].
    #[must_use]
    pub fn reasons(&self, mem: Option<Mem>, stand: &Stand) -> Reasons {
        match mem {
            Some(mem) => reasons(mem, stand, self.facts()),
            None if stand.is_usable() => UNKNOWN_MEMORY,
            None => UNKNOWN_MEMORY | stand.problems(),
        }
    }

    /// The reasons of a memory that come before RETRACTED: those of its sources, and ERASED. Needs [`Self::is_current`].
    #[must_use]
    pub fn first_reasons(&self, mem: Mem, stand: &Stand) -> Reasons {
        let erased = if self.changes().erasures.erased().has(mem) { ERASED } else { 0 };
        stand.reasons_of_sources(mem, self.facts()) | erased
    }

    /// Whether a memory may be hidden by more than its sources: erased, retracted or replaced.
    #[inline]
    #[must_use]
    pub fn is_changed(&self, mem: Mem) -> bool {
        let changes = self.changes();
        !changes.is_empty() && (changes.may_withhold(mem) || changes.supersession.related().has(mem))
    }

    /// All reasons by way of the tour alone; `None` where that does not decide.
    #[must_use]
    pub fn reasons_by_tour(&self, mem: Mem, stand: &Stand) -> Option<Reasons> {
        if self.is_changed(mem) {
            return None;
        }
        let span = self.index.span(mem);
        let (top, anchor) = stand.only_anchor()?;
        (span.size > 0 && self.tour().knows(anchor)).then(|| self.tour().misplaced(span, anchor, top))
    }

    /// Whether freezing the tour would cost less than `slow` verdicts have cost for want of it.
    #[must_use]
    pub fn tour_pays(&self, slow: usize) -> bool {
        !self.is_toured() && slow > self.forest().len() / 4
    }

    /// All reasons of every memory under a policy, by ordinal. O(memories + references of forks + what covers and
    /// replaces them). Needs [`Self::is_current`].
    #[must_use]
    pub fn all_reasons(&self, stand: &Stand, policy: Reasons) -> Vec<Reasons> {
        let policy = policy & !UNKNOWN_MEMORY;
        let mut out = self.reasons_of_sources(stand);
        if self.changes().is_empty() {
            return out;
        }
        let mut seen = Seen::new(stand, self.facts());
        for (at, reasons) in out.iter_mut().enumerate() {
            *reasons |= withheld(Mem(at as u32), &mut seen);
        }
        let supersession = &self.changes().supersession;
        let live = Self::among(&out, policy);
        let replaced = supersession.replaced(live.visible.among(supersession.replaces()), self.ids(), self.memories());
        for mem in supersession.related().iter().filter(|&mem| replaced.has(mem)) {
            out[mem.at()] |= SUPERSEDED;
        }
        out
    }

    /// Those of the flags of every memory and of where its sources lie.
    fn reasons_of_sources(&self, stand: &Stand) -> Vec<Reasons> {
        let flags = self.memories().all_flags();
        if !stand.is_usable() {
            return flags.iter().map(|flags| flags | stand.problems()).collect();
        }
        let mut out = self.misplaced_wide(stand);
        for (at, reasons) in out.iter_mut().enumerate() {
            let shape = self.memories().shape(Mem(at as u32));
            if !matches!(shape, Shape::Wide | Shape::Fork) {
                *reasons = stand.misplaced_homes(self.memories().homes(&shape), self.facts());
            }
            *reasons = stand.with_problems(*reasons | flags[at]);
        }
        out
    }

    /// What is wrong with the sources of each fork and wide memory, by ordinal; 0 for all others.
    /// O(memories + references of forks): upstreams come before what derives from them.
    fn misplaced_wide(&self, stand: &Stand) -> Vec<Reasons> {
        let mut out = vec![0; self.memories().len()];
        let underived = |mem: &Mem| !self.memories().is_settled(*mem) && self.memories().upstreams(*mem).is_empty();
        for mem in self.memories().wide().iter().copied().chain(self.memories().irregular().filter(underived)) {
            out[mem.at()] = self.misplaced(mem, stand, &out);
        }
        for group in self.memories().wide_open() {
            let all = group.iter().fold(0, |all, &mem| all | self.misplaced(mem, stand, &out));
            group.iter().for_each(|mem| out[mem.at()] = all);
        }
        out
    }

    /// What is wrong with the sources of a fork or wide memory, given that of those it derives from.
    fn misplaced(&self, mem: Mem, stand: &Stand, known: &[Reasons]) -> Reasons {
        let own = stand.misplaced_own(mem, self.facts());
        self.facts().upstreams(mem).fold(own, |out, up| {
            let shape = self.memories().shape(up);
            match shape {
                Shape::Wide | Shape::Fork => out | known[up.at()],
                _ => out | stand.misplaced_homes(self.memories().homes(&shape), self.facts()),
            }
        })
    }

    /// What is visible in strict, where that is little and found quickly by a walk along the path;
    /// else `None`. No anchor usable: nothing.
    #[must_use]
    pub fn walk(&self, stand: &Stand) -> Option<Answer> {
        if stand.anchors().len() > MAX_TREES && !self.memories().wide().is_empty() {
            return None;
        }
        let (found, covered) = self.index.walk(stand, self.facts())?;
        let mut answer = Answer { visible: Visible::Sparse(found), admitted: Admitted::default() };
        if !self.changes().is_empty() {
            self.withhold(&mut answer, &covered, stand, 0);
            self.replace(&mut answer, stand, 0);
        }
        Some(answer)
    }

    /// What is visible in strict, by a scan of all memories that have their sources in few trees.
    #[cfg(test)]
    pub(crate) fn scan(&self, stand: &Stand) -> Visible {
        self.index.scan(stand, self.facts())
    }

    /// Which memories are visible under a policy. Where it lets anything through, needs [`Self::is_current`].
    ///
    /// Cost: the path and what is found, or a scan of all memories, whichever is less; with a
    /// policy, the memories that have a flag on top.
    #[must_use]
    pub fn answer(&self, stand: &Stand, policy: Reasons) -> Answer {
        let policy = policy & !UNKNOWN_MEMORY;
        let mut answer = self.live(stand, policy);
        self.replace(&mut answer, stand, policy);
        answer
    }

    /// Which memories would be visible if SUPERSEDED did not exist.
    pub(crate) fn live(&self, stand: &Stand, policy: Reasons) -> Answer {
        if !stand.is_usable() && stand.problems() & !policy != 0 {
            return Answer { visible: Visible::Sparse(Vec::new()), admitted: Admitted::default() };
        }
        if !stand.is_usable() || policy & PLACED != 0 {
            let mut reasons = self.reasons_of_sources(stand);
            if !self.changes().is_empty() {
                let mut seen = Seen::new(stand, self.facts());
                let all = reasons.iter_mut().enumerate();
                all.for_each(|(at, reasons)| *reasons |= withheld(Mem(at as u32), &mut seen));
            }
            return Self::among(&reasons, policy);
        }
        let (visible, covered) = self.index.on_path(stand, self.facts());
        let mut answer = Answer { visible, admitted: Admitted::default() };
        if !self.changes().is_empty() {
            self.withhold(&mut answer, &covered, stand, policy);
        }
        let Answer { mut visible, mut admitted } = answer;
        let mut show = |mem: Mem, reasons: Reasons| {
            if reasons & !policy == 0 {
                admitted.add(reasons);
                visible.push(mem);
            }
        };
        // No anchors show a fork, and no few anchors what has sources in many trees.
        let wide = if stand.anchors().len() > MAX_TREES { self.misplaced_wide(stand) } else { Vec::new() };
        let mut seen = Seen::new(stand, self.facts());
        let mut reasons = |mem: Mem| match self.memories().shape(mem) {
            Shape::Fork => SIBLING,
            Shape::Wide => {
                let sources = self.memories().flags(mem) | wide.get(mem.at()).unwrap_or(&OTHER_TREE);
                stand.with_problems(sources) | withheld(mem, &mut seen)
            }
            _ => stand.reasons_of_sources(mem, self.facts()) | withheld(mem, &mut seen),
        };
        if !wide.is_empty() {
            let regular = |mem: &&Mem| self.memories().flags(**mem) == 0;
            self.memories().wide().iter().filter(regular).for_each(|&mem| show(mem, reasons(mem)));
        }
        if policy != 0 {
            let admitted = |mem: &Mem| self.memories().flags(*mem) & !policy == 0;
            self.memories().irregular().filter(admitted).for_each(|mem| show(mem, reasons(mem)));
        }
        Answer { visible, admitted }
    }

    fn among(reasons: &[Reasons], policy: Reasons) -> Answer {
        let mut words = vec![0; reasons.len().div_ceil(64)];
        let mut admitted = Admitted::default();
        for (at, &reasons) in reasons.iter().enumerate() {
            if reasons & !policy == 0 {
                words[at / 64] |= 1 << (at % 64);
                admitted.add(reasons);
            }
        }
        Answer { visible: Visible::Dense(words), admitted }
    }

    /// Whether memory `mems[i]` is visible at message `nodes[i]`, both by ordinal: 1 or 0. An ordinal
    /// beyond all is not in the log. Returns what was let through.
    ///
    /// One comparison a pair in strict, where the tour is fresh. Under a policy, needs [`Self::is_current`].
    pub fn pairs(&self, mems: &[AtomicU32], nodes: &[AtomicU32], policy: Reasons, visible: &mut [u8]) -> Admitted {
        let policy = policy & !UNKNOWN_MEMORY;
        let mut admitted = Admitted::default();
        let pairs = mems.iter().zip(nodes).map(|(mem, node)| (mem.load(Relaxed), node.load(Relaxed)));
        if policy == 0 {
            covers_each(self.index.spans(), mems, self.tour().positions(), nodes, visible);
            if self.index.later() > 0 || !self.is_pointed() {
                for ((mem, node), visible) in pairs.clone().zip(visible.iter_mut()) {
                    if self.index.is_later(mem) || !self.tour().knows(Node(node)) {
                        *visible |= u8::from(self.shows_by_chains(Mem(mem), Node(node)));
                    }
                }
            }
            if !self.changes().is_empty() {
                let mut views = Map::default();
                for ((mem, node), visible) in pairs.zip(visible).filter(|(_, visible)| **visible == 1) {
                    if self.is_changed(Mem(mem)) {
                        *visible = u8::from(self.is_left(Mem(mem), Node(node), &mut views));
                    }
                }
            }
            return admitted;
        }
        let mut views = Map::default();
        for ((mem, ordinal), visible) in pairs.zip(visible) {
            let mem = ((mem as usize) < self.memories().len()).then_some(Mem(mem));
            let node = ((ordinal as usize) < self.forest().len()).then_some(Node(ordinal));
            let stand = Stand::at(node, self.forest());
            let mut reasons = match mem.map(|mem| self.memories().shape(mem)) {
                // One anchor shows neither; which of the reasons it is does not matter.
                Some(Shape::Fork | Shape::Wide) if stand.is_usable() && policy & PLACED == 0 => SIBLING,
                _ => self.reasons(mem, &stand),
            };
            if let Some(mem) = mem.filter(|_| reasons & !policy == 0)
                && self.is_replaced_at(mem, Node(ordinal), &stand, policy, &mut views)
            {
                reasons |= SUPERSEDED;
            }
            *visible = u8::from(reasons & !policy == 0);
            if *visible == 1 {
                admitted.add(reasons);
            }
        }
        admitted
    }

    /// The same in strict by chain labels, for what the tour does not know.
    fn shows_by_chains(&self, mem: Mem, node: Node) -> bool {
        if mem.at() >= self.memories().len() || node.at() >= self.forest().len() {
            return false;
        }
        let Shape::Home(home) = self.memories().shape(mem) else { return false };
        self.memories().is_settled(mem)
            && self.memories().flags(mem) == 0
            && self.forest().is_attached(node)
            && self.forest().is_ancestor(home, node)
    }

    /// The memories that no set of anchors can show in strict as the log is, with the reasons that stay. Needs
    /// [`Self::is_current`]. O(memories + what wide ones derive from + what covers them).
    #[must_use]
    pub fn unshowable(&self) -> Vec<(Mem, Reasons)> {
        let lasting = lasting(self.facts());
        let stay = |mem: Mem| {
            let fork = match self.memories().shape(mem) {
                Shape::Fork => true,
                Shape::Wide => self.is_fork(mem),
                Shape::Nowhere | Shape::Home(_) | Shape::Several(_) => false,
            };
            let erased = if self.changes().erasures.erased().has(mem) { ERASED } else { 0 };
            let retracted = if lasting.has(mem) { RETRACTED } else { 0 };
            self.memories().flags(mem) | if fork { SIBLING } else { 0 } | erased | retracted
        };
        let all = (0..self.memories().len() as u32).map(Mem).map(|mem| (mem, stay(mem)));
        all.filter(|&(_, reasons)| reasons != 0).collect()
    }

    /// Whether a memory has sources on two branches of a tree, found from all of them.
    fn is_fork(&self, mem: Mem) -> bool {
        let reach = std::iter::once(mem).chain(self.facts().all_upstreams(mem));
        let sources =
            reach.flat_map(|mem| self.memories().sources(mem)).filter_map(|&source| self.ids().message(source));
        let mut deepest: Map<Node, Node> = Map::default();
        for node in sources.filter(|&node| self.forest().is_attached(node) && !self.forest().is_legacy(node)) {
            let known = deepest.entry(self.forest().top(node)).or_insert(node);
            if self.forest().is_ancestor(*known, node) {
                *known = node;
            } else if !self.forest().is_ancestor(node, *known) {
                return true;
            }
        }
        false
    }

    /// How deep the deepest effective source of a memory lies; -1 where none is attached.
    ///
    /// O(1) for sources on one path, else O(what it derives from). Needs [`Self::is_current`].
    #[must_use]
    pub fn depth(&self, mem: Mem) -> i64 {
        let wide = |mem: Mem| matches!(self.memories().shape(mem), Shape::Wide | Shape::Fork);
        if !wide(mem) {
            return self.depth_of_homes(mem);
        }
        let (mut deepest, mut next, mut met) = (-1, vec![mem], Set::from_iter([mem]));
        while let Some(mem) = next.pop() {
            deepest = deepest.max(self.depth_of_homes(mem));
            if wide(mem) {
                let own = self.memories().sources(mem).iter().filter_map(|&source| self.ids().message(source));
                let attached = own.filter(|&node| self.forest().is_attached(node));
                deepest = attached.fold(deepest, |deepest, node| deepest.max(i64::from(self.forest().depth(node))));
                next.extend(self.facts().upstreams(mem).filter(|&up| met.insert(up)));
            }
        }
        deepest
    }

    /// The same by the reduction alone, in which a legacy source, which has depth 0, is but a flag.
    fn depth_of_homes(&self, mem: Mem) -> i64 {
        let legacy = if self.memories().flags(mem) & LEGACY_SOURCE == 0 { -1 } else { 0 };
        let shape = self.memories().shape(mem);
        let homes = self.memories().homes(&shape).iter();
        homes.fold(legacy, |deepest, &home| deepest.max(i64::from(self.forest().depth(home))))
    }

    /// All reasons of a memory under a policy, with the ids at fault. O(all that it derives from, all that covers it
    /// and all that may replace it).
    #[must_use]
    pub fn explain(&self, mem: Mem, stand: &Stand, policy: Reasons) -> Explanation {
        let policy = policy & !UNKNOWN_MEMORY;
        let mut out = explain::explain(mem, stand, self.facts());
        for other in self.replacing(mem, stand, policy) {
            out.blame(SUPERSEDED, self.memories().number(other));
        }
        let superseded = self.all_replaced(self.facts().all_upstreams(mem), stand, policy);
        out.superseded_upstream = superseded.map(|up| self.memories().number(up)).collect();
        out
    }
}
