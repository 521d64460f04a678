//! Hostile blocks for the skeleton decoder: no panic, no id left behind, no more memory than there may be.
//!
//! `branchmem-fuzz [--inputs N] [--seed N] [--first N]` makes each input from the
//! seed and its number, decodes it, and checks what is promised of any bytes;
//! then the largest blocks that there are. It prints one line of figures. What
//! breaks a promise is printed as hex and is exit status 1.

mod checks;
mod hostile;
mod largest;
mod memory;
mod random;
mod records;
mod words;

use checks::{Fate, check};
use hostile::{Input, input};
use std::process::ExitCode;
use words::Context;

#[global_allocator]
static MEMORY: memory::Counted = memory::Counted;

/// How many bytes of an input that breaks a promise are printed.
const SHOWN: usize = 500;

struct Asked {
    inputs: u64,
    seed: u64,
    first: u64,
}

fn arguments() -> Result<Asked, String> {
    let mut asked = Asked { inputs: 1_000_000, seed: 20_260_101, first: 0 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().and_then(|value| value.parse::<u64>().ok());
        match (word.as_str(), value) {
            ("--inputs", Some(value)) => asked.inputs = value,
            ("--seed", Some(value)) => asked.seed = value,
            ("--first", Some(value)) => asked.first = value,
            _ => return Err(format!("{word}: --inputs N, --seed N and --first N, the number of the first input")),
        }
    }
    Ok(asked)
}

/// Check one input after the other; how many were read, and the most bytes that decoding one held.
fn run(asked: &Asked) -> Result<(u64, usize), String> {
    let mut contexts = Context::all();
    let (mut read, mut most) = (0, 0);
    for number in asked.first..asked.first + asked.inputs {
        let input = input(number, asked.seed, &contexts);
        let (fate, peak) = checked(&input, &mut contexts, || format!("input {number}"))?;
        read += u64::from(fate == Fate::Read);
        most = most.max(peak);
    }
    for (name, make) in largest::BLOCKS {
        let (_, peak) = checked(&make(), &mut contexts, || name.to_owned())?;
        most = most.max(peak);
    }
    Ok((read, most))
}

fn checked(input: &Input, contexts: &mut [Context], name: impl Fn() -> String) -> Result<(Fate, usize), String> {
    check(input, contexts).map_err(|why| format!("{}, log {}: {why}\n{}", name(), input.context, hex(&input.bytes)))
}

fn hex(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let text = shown.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    if shown.len() < bytes.len() { format!("{text}... {} bytes", bytes.len()) } else { text }
}

fn main() -> ExitCode {
    let asked = match arguments() {
        Ok(asked) => asked,
        Err(usage) => {
            eprintln!("branchmem-fuzz: {usage}");
            return ExitCode::from(2);
        }
    };
    let (seed, inputs) = (asked.seed, asked.inputs);
    match run(&asked) {
        Ok((read, most)) => {
            println!(
                "seed {seed}: {inputs} blocks, {read} read, the others refused; decoding held {most} bytes at most"
            );
            ExitCode::SUCCESS
        }
        Err(broken) => {
            eprintln!("branchmem-fuzz: seed {seed}, {broken}");
            ExitCode::FAILURE
        }
    }
}
