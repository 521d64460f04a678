//! The topology alone, below Python: what an append and an ancestor check cost on every shape.
//!
//! `branchmem-bench append|check [--events N] [--rounds N]` grows each shape with
//! the engine's forest and tour and with the bare twin, finds every label given
//! once and every answer equal to plain intervals, then times them in turns and
//! prints one JSON document. What differs is exit status 1 and no figure.

mod ours;
#[cfg(target_os = "linux")]
#[path = "../../py/src/pages.rs"]
mod pages;
mod plain;
mod shapes;
mod timing;
mod twin;

use ours::Ours;
use plain::Intervals;
use shapes::{SEED, SHAPES, Shape};
use std::fmt::Write;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use timing::{Runner, race};
use twin::Twin;

/// Memory as the engine has it in the wheel, for ours and the twin alike.
#[cfg(target_os = "linux")]
#[global_allocator]
static MEMORY: pages::LargePages = pages::LargePages;

/// The share of the pairs that chain labels, which may take long, are timed on.
const CHAINS_SHARE: usize = 10;

/// A shape grown by both, found equal; the tour fresh.
struct Grown {
    shape: Shape,
    parents: Vec<u32>,
    pairs: Vec<(u32, u32)>,
    ours: Ours,
    twin: Twin,
    checked: usize,
}

impl Grown {
    /// Grow a shape by both, or say what differs.
    fn checked(shape: Shape, count: u32) -> Result<Self, String> {
        let parents = shape.grow(count);
        let unsteady = [ours::relabelled(&parents), ours::not_labelled_once(&parents)];
        if unsteady != [0; 2] {
            return Err(format!("{}: {} labels moved, {} not given once", shape.name, unsteady[0], unsteady[1]));
        }
        let pairs = plain::pairs(&parents);
        let mut grown = Self { shape, parents, pairs, ours: Ours::default(), twin: Twin::default(), checked: 0 };
        for &parent in &grown.parents {
            grown.ours.push(parent);
            grown.twin.push(parent);
        }
        let plain = Intervals::of(&grown.parents);
        grown.compare(&plain)?;
        grown.ours.tour.rebuild(&grown.ours.forest);
        grown.compare(&plain)?;
        Ok(grown)
    }

    fn compare(&mut self, plain: &Intervals) -> Result<(), String> {
        for &(a, b) in &self.pairs {
            let expected = plain.is_ancestor(a, b);
            let answers =
                [self.ours.is_ancestor(a, b), self.ours.is_ancestor_by_chains(a, b), self.twin.is_ancestor(a, b)];
            if answers != [expected; 3] {
                let name = self.shape.name;
                return Err(format!("{name}, {a} above {b}: {expected}; tour, chains and twin say {answers:?}"));
            }
            self.checked += answers.len();
        }
        Ok(())
    }

    /// Nanoseconds an append: ours, the twin.
    fn appends(&self, rounds: usize) -> Vec<f64> {
        let runners: Vec<Runner<'_>> =
            vec![Box::new(|| appending(&self.parents, Ours::push)), Box::new(|| appending(&self.parents, Twin::push))];
        race(runners, rounds, self.parents.len())
    }

    /// A pass of checks by the tour.
    fn tour_checks(&self) -> Runner<'_> {
        Box::new(|| asking(&self.pairs, |a, b| self.ours.is_ancestor(a, b)))
    }

    /// Nanoseconds a check by chain labels: ours, the twin.
    fn chain_checks(&self, rounds: usize) -> Vec<f64> {
        let pairs = &self.pairs[..self.pairs.len().div_ceil(CHAINS_SHARE)];
        let runners: Vec<Runner<'_>> = vec![
            Box::new(|| asking(pairs, |a, b| self.ours.is_ancestor_by_chains(a, b))),
            Box::new(|| asking(pairs, |a, b| self.twin.is_ancestor(a, b))),
        ];
        race(runners, rounds, pairs.len())
    }

    /// The JSON object of a shape, with its figures in nanoseconds.
    fn report(&self, figures: &[(&str, f64)]) -> String {
        let (trees, deepest, mean) = shapes::description(&self.parents);
        let mut report = format!(
            "{{\"shape\": \"{}\", \"trees\": {trees}, \"depth\": {deepest}, \"mean_depth\": {mean:.1}, \
             \"found_equal\": {}",
            self.shape.name, self.checked
        );
        for (name, ns) in figures {
            write!(report, ", \"{name}\": {ns:.3}").expect("a string takes what is written");
        }
        report + "}"
    }
}

/// One pass of appending all messages to something empty.
fn appending<T: Default>(parents: &[u32], push: impl Fn(&mut T, u32)) -> Duration {
    let mut empty = T::default();
    let start = Instant::now();
    for &parent in parents {
        push(&mut empty, parent);
    }
    let took = start.elapsed();
    drop(black_box(empty));
    took
}

/// One pass of asking all pairs.
fn asking(pairs: &[(u32, u32)], is_ancestor: impl Fn(u32, u32) -> bool) -> Duration {
    let start = Instant::now();
    black_box(pairs.iter().filter(|&&(a, b)| is_ancestor(a, b)).count());
    start.elapsed()
}

/// What an append costs on each shape, one shape after the other.
fn append(events: u32, rounds: usize) -> Result<Vec<String>, String> {
    let measured = |shape| {
        let grown = Grown::checked(shape, events)?;
        let ns = grown.appends(rounds);
        Ok(grown.report(&[("ours_ns", ns[0]), ("twin_ns", ns[1])]))
    };
    SHAPES.into_iter().map(measured).collect()
}

/// What a check costs with the tour fresh, all shapes in turns; and by chain labels, for information.
fn check(events: u32, rounds: usize) -> Result<Vec<String>, String> {
    let grown = SHAPES.into_iter().map(|shape| Grown::checked(shape, events)).collect::<Result<Vec<_>, _>>()?;
    let tours = race(grown.iter().map(Grown::tour_checks).collect(), rounds, events as usize);
    let report = |(grown, tour): (&Grown, f64)| {
        let chains = grown.chain_checks(rounds);
        grown.report(&[("tour_ns", tour), ("chains_ns", chains[0]), ("twin_ns", chains[1])])
    };
    Ok(grown.iter().zip(tours).map(report).collect())
}

type Question = fn(u32, usize) -> Result<Vec<String>, String>;

fn arguments() -> Result<(Question, u32, usize), String> {
    let mut words = std::env::args().skip(1);
    let question: Question = match words.next().as_deref() {
        Some("append") => append,
        Some("check") => check,
        _ => return Err("append or check, then --events N and --rounds N".to_owned()),
    };
    let (mut events, mut rounds) = (1_000_000, 5);
    while let Some(word) = words.next() {
        let value = words.next().and_then(|value| value.parse::<u32>().ok()).filter(|&value| value > 0);
        match (word.as_str(), value) {
            ("--events", Some(value)) if value < 1 << 30 => events = value,
            ("--rounds", Some(value)) => rounds = value as usize,
            _ => return Err(format!("{word}: --events N, below 2^30, and --rounds N")),
        }
    }
    Ok((question, events, rounds))
}

fn main() -> ExitCode {
    let (question, events, rounds) = match arguments() {
        Ok(chosen) => chosen,
        Err(usage) => {
            eprintln!("branchmem-bench: {usage}");
            return ExitCode::from(2);
        }
    };
    match question(events, rounds) {
        Ok(shapes) => {
            let shapes = shapes.join(",\n  ");
            println!("{{\"events\": {events}, \"rounds\": {rounds}, \"seed\": {SEED}, \"shapes\": [\n  {shapes}\n]}}");
            ExitCode::SUCCESS
        }
        Err(differs) => {
            eprintln!("branchmem-bench: {differs}");
            ExitCode::FAILURE
        }
    }
}
