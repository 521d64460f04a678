//! Which are the best of many, each text once?

use std::cmp::Ordering;

/// A place, and what it scored.
pub type Scored = (f64, u32);

/// The best `count`, best first: by score, then as `tie` says. O(found), and O(n log n) in `count`.
#[must_use]
pub fn best(mut found: Vec<Scored>, count: usize, tie: impl Fn(u32, u32) -> Ordering) -> Vec<Scored> {
    let order = |a: &Scored, b: &Scored| b.0.total_cmp(&a.0).then_with(|| tie(a.1, b.1));
    if count < found.len() {
        if count == 0 {
            return Vec::new();
        }
        found.select_nth_unstable_by(count - 1, order);
        found.truncate(count);
    }
    found.sort_unstable_by(order);
    found
}

/// As [`best`], of those with different labels.
#[must_use]
pub fn best_labels(
    found: &[Scored],
    count: usize,
    tie: impl Fn(u32, u32) -> Ordering,
    label: impl Fn(u32) -> u32,
) -> Vec<Scored> {
    let mut take = count;
    loop {
        let sorted = best(found.to_vec(), take, &tie);
        let mut seen = crate::Set::default();
        let mut out: Vec<_> = sorted.into_iter().filter(|&(_, place)| seen.insert(label(place))).collect();
        if out.len() >= count || take >= found.len() {
            out.truncate(count);
            return out;
        }
        take *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_stand_as_the_tie_says_and_equal_texts_once() {
        let found = vec![(1.0, 4), (2.0, 1), (1.0, 2), (2.0, 0), (0.5, 3)];
        let ids = |out: Vec<Scored>| out.into_iter().map(|(_, place)| place).collect::<Vec<_>>();
        for count in 0..6 {
            let all = best(found.clone(), count, |a, b| a.cmp(&b));
            assert_eq!(ids(all), [0, 1, 2, 4, 3][..count.min(5)]);
            let texts = best_labels(&found, count, |a, b| a.cmp(&b), |place| place % 2);
            assert_eq!(ids(texts), [0, 1][..count.min(2)]);
        }
    }
}
