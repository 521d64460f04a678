//! What is left of a set of memories after erasure, retraction and supersession?
//!
//! Whatever the sources show passes here, in this order, since only what is live replaces.

use crate::Map;
use crate::bits::each_bit;
use crate::engine::Engine;
use crate::ids::{Mem, Node};
use crate::reason::{RETRACTED, Reasons, SUPERSEDED};
use crate::seen::{Seen, reasons, withheld_on_path};
use crate::stand::Stand;
use crate::supersession::Replaced;
use crate::visible::{Answer, Visible};
use std::cell::OnceCell;

/// So many memories that might replace one are asked one by one, before the whole view is.
const FEW: usize = 32;
/// So many views are kept at most for the pairs that follow: each may hold a family of versions.
const MOST_VIEWS: usize = 256;

impl Engine {
    /// Leave out what is erased or retracted and not let through. What is in the answer must have no other reason;
    /// `covered` are those of a sparse one that are covered from a message of the path on.
    pub(crate) fn withhold(&self, answer: &mut Answer, covered: &[&[u32]], stand: &Stand, policy: Reasons) {
        let changes = self.changes();
        let Answer { visible, admitted } = answer;
        let mut seen = Seen::new(stand, self.facts());
        let mut keep = |reasons: Reasons| {
            if reasons & !policy == 0 {
                admitted.add(reasons);
            }
            reasons & !policy == 0
        };
        let erased = changes.erasures.erased();
        if !erased.is_empty() {
            visible.retain(erased, |mem| keep(withheld_on_path(mem, &mut seen)));
        }
        if policy & RETRACTED == 0 {
            self.uncover(visible, covered, stand, &mut seen);
        } else {
            // What is erased and let through was looked at as a whole.
            let covered = changes.cover.covered();
            visible.retain(covered, |mem| erased.has(mem) || keep(withheld_on_path(mem, &mut seen)));
        }
    }

    /// Leave out what a retraction covers.
    fn uncover(&self, visible: &mut Visible, covered: &[&[u32]], stand: &Stand, seen: &mut Seen<'_>) {
        let changes = self.changes();
        let others = if stand.only_anchor().is_none() { u64::MAX } else { 0 };
        let mut stays = |mem: Mem| withheld_on_path(mem, seen) & RETRACTED == 0;
        match visible {
            // About half may be covered, in no order, so nothing branches on that.
            Visible::Sparse(found) => self.marked.with(covered, self.memories().len(), |marked| {
                let (known, mut kept) = (changes.covered.known_words(), 0);
                for at in 0..found.len() {
                    let (mem, word) = (found[at], found[at] as usize / 64);
                    found[kept] = mem;
                    let Some(known) = known.get(word) else {
                        kept += 1;
                        continue;
                    };
                    let bit = 1 << (mem % 64);
                    let gone = (known.always | marked.get(word).unwrap_or(&0)) & bit != 0;
                    let look = (known.look | known.elsewhere & others) & bit != 0;
                    kept += usize::from(if look { stays(Mem(mem)) } else { !gone });
                }
                found.truncate(kept);
            }),
            Visible::Dense(words) => {
                for (at, (word, known)) in words.iter_mut().zip(changes.covered.known_words()).enumerate() {
                    *word &= !known.always;
                    for bit in each_bit(*word & (known.somewhere | known.elsewhere & others)) {
                        if !stays(Mem(at as u32 * 64 + bit)) {
                            *word &= !(1 << bit);
                        }
                    }
                }
            }
        }
    }

    /// Leave out what is replaced, or count it where that is let through.
    pub(crate) fn replace(&self, answer: &mut Answer, stand: &Stand, policy: Reasons) {
        let supersession = &self.changes().supersession;
        if supersession.is_empty() {
            return;
        }
        let Answer { visible, admitted } = answer;
        let replaced = self.replaced_by(visible);
        if replaced.is_nothing() {
            return;
        }
        if policy & SUPERSEDED != 0 {
            let both = visible.among(supersession.related()).filter(|&mem| replaced.has(mem));
            both.for_each(|_| admitted.add(SUPERSEDED));
            return;
        }
        visible.retain(supersession.related(), |mem| {
            let gone = replaced.has(mem);
            if gone && policy != 0 {
                admitted.remove(reasons(mem, stand, self.facts()));
            }
            !gone
        });
    }

    fn replaced_by(&self, live: &Visible) -> Replaced<'_> {
        let supersession = &self.changes().supersession;
        supersession.replaced(live.among(supersession.replaces()), self.ids(), self.memories())
    }

    /// What is replaced where a view stands. O(the view).
    #[must_use]
    pub fn replaced(&self, stand: &Stand, policy: Reasons) -> Replaced<'_> {
        self.replaced_by(&self.live(stand, policy).visible)
    }

    /// The memories that are live in a view and replace a memory, itself aside; nearest first, as they are asked for.
    pub fn replacing(&self, mem: Mem, stand: &Stand, policy: Reasons) -> impl Iterator<Item = Mem> {
        let all = self.changes().supersession.replacements(mem, self.memories());
        all.filter(move |&other| self.is_live(other, stand, policy))
    }

    /// Whether nothing but SUPERSEDED may hide a memory. Flags of what is not settled may be out of date in strict,
    /// where one of them hides it for sure.
    fn is_live(&self, mem: Mem, stand: &Stand, policy: Reasons) -> bool {
        (policy != 0 || self.memories().is_settled(mem)) && reasons(mem, stand, self.facts()) & !policy == 0
    }

    /// Whether one memory is replaced in a view. O(those that may replace it) where they are few, else O(the view).
    #[must_use]
    pub fn is_replaced(&self, mem: Mem, stand: &Stand, policy: Reasons) -> bool {
        self.is_replaced_by_few(mem, stand, policy).unwrap_or_else(|| self.replaced(stand, policy).has(mem))
    }

    fn is_replaced_by_few(&self, mem: Mem, stand: &Stand, policy: Reasons) -> Option<bool> {
        let supersession = &self.changes().supersession;
        if !supersession.related().has(mem) {
            return Some(false);
        }
        let mut others = supersession.replacements(mem, self.memories());
        if others.by_ref().take(FEW).any(|other| self.is_live(other, stand, policy)) {
            return Some(true);
        }
        others.next().is_none().then_some(false)
    }

    /// Of pairs that their sources show in strict, whether nothing else hides a memory. Views as in
    /// [`Self::is_replaced_at`].
    pub(crate) fn is_left<'a>(&'a self, mem: Mem, node: Node, views: &mut Map<u32, Replaced<'a>>) -> bool {
        let stand = Stand::at(Some(node), self.forest());
        if self.changes().may_withhold(mem) && withheld_on_path(mem, &mut Seen::new(&stand, self.facts())) != 0 {
            return false;
        }
        !self.is_replaced_at(mem, node, &stand, 0, views)
    }

    /// Whether one memory is replaced where a view stands on one message. Some of the views that one had to be judged
    /// by are kept.
    pub(crate) fn is_replaced_at<'a>(
        &'a self,
        mem: Mem,
        node: Node,
        stand: &Stand,
        policy: Reasons,
        views: &mut Map<u32, Replaced<'a>>,
    ) -> bool {
        self.is_replaced_by_few(mem, stand, policy).unwrap_or_else(|| {
            if views.len() == MOST_VIEWS && !views.contains_key(&node.0) {
                views.clear();
            }
            views.entry(node.0).or_insert_with(|| self.replaced(stand, policy)).has(mem)
        })
    }

    /// Those of some memories that are replaced in a view. O(those that may replace each), and the view at most once.
    pub(crate) fn all_replaced(
        &self,
        mems: impl IntoIterator<Item = Mem>,
        stand: &Stand,
        policy: Reasons,
    ) -> impl Iterator<Item = Mem> {
        let view = OnceCell::new();
        let of_view = move |mem: Mem| view.get_or_init(|| self.replaced(stand, policy)).has(mem);
        let is_replaced = move |&mem: &Mem| self.is_replaced_by_few(mem, stand, policy).unwrap_or_else(|| of_view(mem));
        mems.into_iter().filter(is_replaced)
    }
}
