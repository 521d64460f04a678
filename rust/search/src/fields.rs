//! What is kept of a memory besides its words: when it was made and last used, its importance, its meta.

use crate::Map;
use crate::content::Content;

/// No time.
const NEVER: i64 = i64::MIN;

/// How importance fades.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Microseconds until half of it is left; infinite: it does not fade.
    pub half_life: f64,
    /// Below this a memory is faded.
    pub floor: f64,
}

/// The fields of memories, by ordinal.
#[derive(Default)]
pub struct Fields {
    created: Vec<i64>,
    /// When they were made or last used, whichever is later.
    last: Vec<i64>,
    importance: Map<u32, f64>,
    meta: Map<u32, Box<[u8]>>,
    /// What was used before it was taken in.
    early: Map<u32, i64>,
}

impl Fields {
    /// Take in the fields of the next memory.
    pub fn push(&mut self, content: Option<&Content<'_>>) {
        let ordinal = self.created.len() as u32;
        let created = content.and_then(|content| content.created).unwrap_or(NEVER);
        self.created.push(created);
        self.last.push(created.max(self.early.remove(&ordinal).unwrap_or(NEVER)));
        if let Some(content) = content {
            if content.importance < 1.0 {
                self.importance.insert(ordinal, content.importance);
            }
            if !content.meta.is_empty() {
                self.meta.insert(ordinal, content.meta.into());
            }
        }
    }

    /// Drop the fields of some memories.
    pub fn forget(&mut self, gone: &[u32]) {
        for ordinal in gone {
            self.created[*ordinal as usize] = NEVER;
            self.last[*ordinal as usize] = NEVER;
            self.importance.remove(ordinal);
            self.meta.remove(ordinal);
        }
    }

    /// When it was made, in microseconds since 1970.
    #[must_use]
    pub fn created(&self, ordinal: u32) -> Option<i64> {
        self.created.get(ordinal as usize).copied().filter(|&created| created != NEVER)
    }

    /// Between 0 and 1.
    #[must_use]
    pub fn importance(&self, ordinal: u32) -> f64 {
        self.importance.get(&ordinal).copied().unwrap_or(1.0)
    }

    /// As it stands in the body; empty where there is none.
    #[must_use]
    pub fn meta(&self, ordinal: u32) -> &[u8] {
        self.meta.get(&ordinal).map_or(&[], AsRef::as_ref)
    }

    /// A memory was used at a time; an earlier one than is known changes nothing.
    pub fn use_at(&mut self, ordinal: u32, at: i64) {
        let known = self.last.get_mut(ordinal as usize);
        let last = known.unwrap_or_else(|| self.early.entry(ordinal).or_insert(NEVER));
        *last = at.max(*last);
    }

    /// What is left of the importance of a memory by now.
    #[must_use]
    pub fn effective(&self, ordinal: u32, pace: Pace, now: i64) -> f64 {
        let last = Some(self.last[ordinal as usize]).filter(|&last| last != NEVER);
        effective(self.importance(ordinal), last, pace, now)
    }

    /// Whether what is left of the importance of a memory is less than the floor. As `effective`, and mostly one
    /// comparison: most importances are 1.
    #[inline]
    #[must_use]
    pub fn is_faded(&self, ordinal: u32, pace: &Pacing, now: i64) -> bool {
        if self.importance.is_empty() || !self.importance.contains_key(&ordinal) {
            let last = self.last[ordinal as usize];
            let since = since((last != NEVER).then_some(last), now);
            return pace.faded_after.is_some_and(|faded_after| since >= faded_after);
        }
        self.effective(ordinal, pace.pace, now) < pace.pace.floor
    }
}

/// A pace, and after how many microseconds without use it leaves an importance of 1 below the floor.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// How importance fades.
    pub pace: Pace,
    faded_after: Option<i64>,
}

impl Pacing {
    /// Found by halving: what is left never grows.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        let is_faded = |since: i64| left(1.0, since, pace) < pace.floor;
        let (mut least, mut most) = (0, i64::MAX);
        while least < most {
            let middle = least + (most - least) / 2;
            if is_faded(middle) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        Self { pace, faded_after: is_faded(least).then_some(least) }
    }
}

/// What is left of an importance: half of it after each half-life since a time, all of it where there is none.
#[must_use]
pub fn effective(importance: f64, last: Option<i64>, pace: Pace, now: i64) -> f64 {
    left(importance, since(last, now), pace)
}

fn since(last: Option<i64>, now: i64) -> i64 {
    last.map_or(0, |last| now.saturating_sub(last).max(0))
}

fn left(importance: f64, since: i64, pace: Pace) -> f64 {
    importance * (-(since as f64) / pace.half_life).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "powers of two are exact")]
    fn half_is_left_after_a_half_life_since_the_last_use() {
        let content = |importance, created| Content { text: "", importance, created, meta: &[] };
        let mut fields = Fields::default();
        fields.push(Some(&content(0.8, Some(1000))));
        fields.push(Some(&content(1.0, None)));
        fields.push(None);
        let pace = Pace { half_life: 100.0, floor: 0.0 };
        let left = |fields: &Fields, ordinal, now| fields.effective(ordinal, pace, now);
        assert_eq!([1000, 1100, 1200, 500].map(|now| left(&fields, 0, now)), [0.8, 0.4, 0.2, 0.8]);
        assert_eq!(left(&fields, 1, 1_000_000), 1.0);
        fields.use_at(0, 1100);
        fields.use_at(0, 900);
        assert_eq!(left(&fields, 0, 1200), 0.4);
        fields.use_at(3, 1100);
        fields.push(Some(&content(1.0, Some(1000))));
        assert_eq!(left(&fields, 3, 1200), 0.5);
        fields.forget(&[3]);
        assert_eq!((fields.last[3], fields.created(3)), (NEVER, None));
        assert_eq!(fields.effective(0, Pace { half_life: f64::INFINITY, floor: 0.0 }, i64::MAX), 0.8);
    }

    #[test]
    fn what_is_faded_is_below_the_floor_to_the_microsecond() {
        let mut fields = Fields::default();
        for importance in [1.0, 0.7, 0.04] {
            fields.push(Some(&Content { text: "", importance, created: Some(0), meta: &[] }));
        }
        for (half_life, floor) in [(1000.0, 0.05), (604_800e6, 0.05), (77.7, 0.0), (f64::INFINITY, 1.0), (5.0, 1.0)] {
            let pacing = Pacing::new(Pace { half_life, floor });
            let edge = pacing.faded_after.unwrap_or(i64::MAX);
            for now in [0, 1, edge.saturating_sub(1), edge, edge.saturating_add(1), edge / 2, i64::MAX] {
                for ordinal in 0..3 {
                    let plain = fields.effective(ordinal, pacing.pace, now) < floor;
                    assert_eq!(fields.is_faded(ordinal, &pacing, now), plain, "{half_life} {floor} {now} {ordinal}");
                }
            }
        }
    }
}
