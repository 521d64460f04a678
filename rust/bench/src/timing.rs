//! Who is quicker, measured side by side, as `bench/timing.py` does it.
//!
//! Rounds are interleaved and begin with another runner each time; a figure is
//! the median over the rounds of the best pass of a round.

use std::time::Duration;

const PASSES: usize = 3;

/// One way to do the whole work once; it says how long that took, so that what it makes before and
/// lets go of after is not counted.
pub type Runner<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// Nanoseconds an operation of each runner. One untimed pass each warms caches first.
pub fn race(mut runners: Vec<Runner<'_>>, rounds: usize, operations: usize) -> Vec<f64> {
    let mut best = vec![Vec::with_capacity(rounds); runners.len()];
    for runner in &mut runners {
        runner();
    }
    for turn in 0..rounds {
        for place in 0..runners.len() {
            let at = (turn + place) % runners.len();
            let quickest = (0..PASSES).map(|_| runners[at]()).min().unwrap_or_default();
            best[at].push(quickest);
        }
    }
    best.into_iter().map(|times| median(times).as_secs_f64() * 1e9 / f64::from(operations as u32)).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let middle = times.len() / 2;
    if times.len() % 2 == 1 { times[middle] } else { (times[middle - 1] + times[middle]) / 2 }
}
