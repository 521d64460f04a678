//! Which vectors are nearest?
//!
//! Rows of length 1, so that a product is a cosine, one after the other in the order in which they came. The answer
//! is exact. Where many rows are asked about, a quarter of the bytes decides which of them are read: each row has a
//! code of one byte a number, and how far at most a cosine by the code is off. Only rows that could be among the best
//! by that are read.

use multiversion::multiversion;

/// So many products are added up side by side, whatever the machine, so that all rows are added up in one order.
const LANES: usize = 32;
/// So many sums or maxima are kept side by side where they are found in one pass: one alone would wait for each step.
const SIDE: usize = 8;
const NONE: u32 = u32::MAX;
/// From so many rows on their codes are looked at first.
const CODED_ROWS: usize = 256;
/// So many times as many rows as are wanted must be asked about for codes to pay.
const CODED_FACTOR: usize = 4;
/// The vectors of some memories, by ordinal.
pub struct Vectors {
    dim: usize,
    /// From one row to the next: `dim` with zeros up to whole lanes.
    stride: usize,
    rows: Vec<f32>,
    codes: Vec<i8>,
    bounds: Vec<Bound>,
    row_of: Vec<u32>,
    ordinals: Vec<u32>,
}

/// A query has two bytes a number, at most this.
const MOST_QUERY: i32 = 8191;

/// What a number of a code stands for, and how far at most a cosine by the code is off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bound {
    scale: f32,
    error: f32,
}

impl Vectors {
    /// None yet, of so many dimensions.
    #[must_use]
    pub fn new(dim: usize) -> Self {
        let stride = dim.next_multiple_of(LANES);
        Self {
            dim,
            stride,
            rows: Vec::new(),
            codes: Vec::new(),
            bounds: Vec::new(),
            row_of: Vec::new(),
            ordinals: Vec::new(),
        }
    }

    /// How many numbers a vector has.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How many memories have one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ordinals.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordinals.is_empty()
    }

    /// The row of a memory, if it has one.
    #[must_use]
    pub fn row(&self, ordinal: u32) -> Option<u32> {
        self.row_of.get(ordinal as usize).copied().filter(|&row| row != NONE)
    }

    /// The memories that have a vector, in the order of the rows.
    #[must_use]
    pub fn ordinals(&self) -> &[u32] {
        &self.ordinals
    }

    /// The numbers of a row.
    #[must_use]
    pub fn numbers(&self, row: usize) -> &[f32] {
        &self.rows[row * self.stride..][..self.dim]
    }

    /// Give a memory its vector of `dim` numbers, scaled to length 1. What it had before is overwritten.
    pub fn put(&mut self, ordinal: u32, vector: &[f32]) {
        let row = self.row(ordinal).unwrap_or_else(|| {
            let row = self.ordinals.len() as u32;
            if self.row_of.len() <= ordinal as usize {
                self.row_of.resize(ordinal as usize + 1, NONE);
            }
            self.row_of[ordinal as usize] = row;
            self.ordinals.push(ordinal);
            self.rows.resize(self.rows.len() + self.stride, 0.0);
            self.codes.resize(self.rows.len(), 0);
            self.bounds.push(Bound::default());
            row
        });
        let (numbers, at) = (unit(vector, self.stride), row as usize * self.stride);
        self.bounds[row as usize] = encode(&numbers, &mut self.codes[at..][..self.stride]);
        self.rows[at..][..self.stride].copy_from_slice(&numbers);
    }

    /// Drop the vectors of some memories, and overwrite them. O(these).
    pub fn forget(&mut self, gone: impl Iterator<Item = u32>) -> usize {
        let mut count = 0;
        for ordinal in gone {
            let Some(row) = self.row(ordinal) else { continue };
            let last = self.ordinals.len() - 1;
            let moved = self.ordinals.swap_remove(row as usize);
            let stride = self.stride;
            self.rows.copy_within(last * stride.., row as usize * stride);
            self.rows[last * stride..].fill(0.0);
            self.rows.truncate(last * stride);
            self.codes.copy_within(last * stride.., row as usize * stride);
            self.codes[last * stride..].fill(0);
            self.codes.truncate(last * stride);
            self.bounds.swap_remove(row as usize);
            if let Some(&moved) = self.ordinals.get(row as usize) {
                self.row_of[moved as usize] = row;
            }
            debug_assert_eq!(moved, ordinal);
            self.row_of[ordinal as usize] = NONE;
            count += 1;
        }
        count
    }

    /// The cosine of each of some rows with a vector of `dim` numbers. O(rows · dim).
    #[must_use]
    pub fn cosines(&self, rows: &[u32], vector: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; rows.len()];
        products(&self.rows, self.stride, rows, &unit(vector, self.stride), &mut out);
        out
    }

    /// Of some rows those that may be among the `count` with the highest cosines, all of them where that is cheaper, by
    /// their places in `rows`; their exact cosines with a vector of `dim` numbers; and the cosine from which on no row
    /// was left out. O(rows · dim).
    #[must_use]
    pub fn contenders(&self, rows: &[u32], asked: &[f32], count: usize) -> (Vec<u32>, Vec<f32>, f32) {
        let all = || (0..rows.len() as u32).collect();
        if rows.len() < CODED_ROWS || rows.len() / CODED_FACTOR < count || count == 0 {
            return (all(), self.cosines(rows, asked), f32::NEG_INFINITY);
        }
        let vector = unit(asked, self.stride);
        let (code, own) = encode_query(&vector);
        let mut near = vec![0; rows.len()];
        code_products(&self.codes, self.stride, rows, &code, &mut near);
        // What a row can have at least and at most, by its code and that of the query.
        let bounds = near.iter().zip(rows).map(|(&near, &row)| {
            let Bound { scale, error } = self.bounds[row as usize];
            (near as f32 * scale * own.scale, error + own.error)
        });
        let bounds: Vec<_> = bounds.collect();
        let mut least: Vec<f32> = bounds.iter().map(|(near, error)| near - error).collect();
        let (_, &mut complete_from, _) = least.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
        let mut places: Vec<u32> = all();
        places.retain(|&place| {
            let (near, error) = bounds[place as usize];
            near + error >= complete_from
        });
        let picked: Vec<u32> = places.iter().map(|&place| rows[place as usize]).collect();
        let mut cosines = vec![0.0; picked.len()];
        products(&self.rows, self.stride, &picked, &vector, &mut cosines);
        (places, cosines, complete_from)
    }
}

/// The code of a row, and how good it is.
fn encode(numbers: &[f32], code: &mut [i8]) -> Bound {
    let (scale, inverse) = scales(numbers, 127);
    let mut squares = 0.0_f64;
    for (number, code) in numbers.iter().zip(code) {
        *code = whole(number * inverse, 127) as i8;
        let off = f64::from(*number) - f64::from(scale) * f64::from(*code);
        squares += off * off;
    }
    // The product of what is left out with a vector of length 1 is at most as long as what is left out.
    Bound { scale, error: squares.sqrt() as f32 * (1.0 + f32::EPSILON) + rounding(numbers.len()) }
}

/// The code of a query, of as many bits as all products with a row add up to in 31.
fn encode_query(numbers: &[f32]) -> (Vec<i16>, Bound) {
    let most = i32::try_from(i32::MAX as usize / 128 / numbers.len()).unwrap_or(0).clamp(1, MOST_QUERY);
    let (scale, inverse) = scales(numbers, most);
    let code = numbers.iter().map(|number| whole(number * inverse, most) as i16).collect();
    // Each number is off by half a step at most, and a little for rounding; the code of a row is less than twice as
    // long as the row, of length 1, that it stands for.
    (code, Bound { scale, error: 1.1 * scale * (numbers.len() as f32).sqrt() })
}

/// What a whole number up to `most` stands for, so that the largest of some numbers is one of them; and its inverse.
fn scales(numbers: &[f32], most: i32) -> (f32, f32) {
    let mut largest = [0.0_f32; SIDE];
    for numbers in numbers.chunks(SIDE) {
        largest.iter_mut().zip(numbers).for_each(|(largest, number)| *largest = largest.max(number.abs()));
    }
    let scale = largest.into_iter().fold(0.0, f32::max) / most as f32;
    (scale, if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 })
}

/// The nearest whole number, without a call.
fn whole(number: f32, most: i32) -> i32 {
    ((number + 0.5_f32.copysign(number)) as i32).clamp(-most, most)
}

/// How far rounding can take a cosine by a code from the one by the row, which is rounded too: each lane adds up one
/// product of so many, then the lanes are added up, and each of these steps is off by half an epsilon of at most the
/// lengths multiplied. A code is less than three times as long as its row.
fn rounding(numbers: usize) -> f32 {
    2.0 * f32::EPSILON * (numbers / LANES + 8) as f32
}

/// A vector scaled to length 1, with zeros up to whole lanes; zeros where it has no length.
#[must_use]
pub fn unit(vector: &[f32], stride: usize) -> Vec<f32> {
    let mut squares = [0.0_f64; SIDE];
    for numbers in vector.chunks(SIDE) {
        squares.iter_mut().zip(numbers).for_each(|(sum, &number)| *sum += f64::from(number) * f64::from(number));
    }
    let length = squares.iter().sum::<f64>().sqrt();
    let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
    let mut out: Vec<_> = vector.iter().map(|&number| (f64::from(number) * scale) as f32).collect();
    out.resize(stride, 0.0);
    out
}

/// The cosine of two vectors as they are stored.
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let stride = a.len().next_multiple_of(LANES);
    let mut out = [0.0];
    products(&unit(a, stride), stride, &[0], &unit(b, stride), &mut out);
    out[0]
}

/// Sums side by side, and how many rows keep theirs before they are added up: a loop that also adds up its sums is
/// compiled for pairs of numbers, not for whole lanes.
type Sums = [f32; LANES];
const BLOCK: usize = 32;
/// Bytes that come from memory together.
const CACHE_LINE: usize = 64;

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512dq", "x86_64+avx2"))]
fn products(numbers: &[f32], stride: usize, rows: &[u32], vector: &[f32], out: &mut [f32]) {
    let vector = vector.as_chunks::<LANES>().0;
    let mut kept = [[0.0; LANES]; BLOCK];
    for (rows, out) in rows.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        for (&row, kept) in rows.iter().zip(&mut kept) {
            let row = numbers[row as usize * stride..][..stride].as_chunks::<LANES>().0;
            let mut sums = [0.0_f32; LANES];
            for (row, vector) in row.iter().zip(vector) {
                for lane in 0..LANES {
                    sums[lane] += row[lane] * vector[lane];
                }
            }
            *kept = sums;
        }
        out.iter_mut().zip(&kept).for_each(|(out, sums)| *out = sum(sums));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl+avx512dq", "x86_64+avx2"))]
fn code_products(codes: &[i8], stride: usize, rows: &[u32], vector: &[i16], out: &mut [i32]) {
    let code = |row: u32| &codes[row as usize * stride..][..stride];
    for (rows, out) in rows.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        // Rows of few cache lines end before the machine runs ahead of them: ask for a block of them at once.
        let lines = rows.iter().flat_map(|&row| code(row).iter().step_by(CACHE_LINE));
        std::hint::black_box(lines.fold(0, |all, one| all ^ one));
        for (&row, out) in rows.iter().zip(out) {
            *out = code(row).iter().zip(vector).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
        }
    }
}

/// Halves upon halves, which takes few steps side by side.
#[inline(never)]
fn sum(sums: &Sums) -> f32 {
    let mut sums = *sums;
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: u32, dim: usize) -> Vec<f32> {
        (0..dim as u32).map(|at| ((seed * 31 + at * 17) % 23) as f32 - 11.0).collect()
    }

    #[test]
    fn cosines_are_those_of_the_schoolbook() {
        for dim in [1, 3, 16, 17, 256] {
            let mut vectors = Vectors::new(dim);
            (0..9).for_each(|at| vectors.put(at * 2, &vector(at, dim)));
            let asked = vector(77, dim);
            let rows: Vec<_> = (0..9).map(|at| vectors.row(at * 2).unwrap()).collect();
            for (at, found) in vectors.contenders(&rows, &asked, 9).1.into_iter().enumerate() {
                let row = vector(at as u32, dim);
                let dot =
                    |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
                let plain = dot(&row, &asked) / (dot(&row, &row) * dot(&asked, &asked)).sqrt().max(f64::MIN_POSITIVE);
                assert!((f64::from(found) - plain).abs() < 1e-5, "{dim} {at}");
                assert_eq!(cosine(&row, &asked).to_bits(), found.to_bits());
            }
        }
    }

    #[test]
    fn none_of_the_best_is_lost_by_looking_at_codes_first() {
        for (dim, spread) in [(3, 1.0), (40, 1.0), (40, 0.01), (64, 0.0)] {
            let mut vectors = Vectors::new(dim);
            let row = |at: u32| -> Vec<f32> {
                vector(at.wrapping_mul(2_654_435_761) >> 7, dim).iter().map(|one| 5.0 + one * spread).collect()
            };
            (0..3000).for_each(|at| vectors.put(at, &row(at)));
            let (rows, asked) = ((0..3000).collect::<Vec<_>>(), row(5));
            let mut all = vec![0.0; rows.len()];
            products(&vectors.rows, vectors.stride, &rows, &unit(&asked, vectors.stride), &mut all);
            for count in [1, 10, 100, 2000] {
                let (places, cosines, complete_from) = vectors.contenders(&rows, &asked, count);
                let mut sorted = all.clone();
                sorted.sort_unstable_by(|a, b| b.total_cmp(a));
                assert!(
                    cosines.iter().zip(&places).all(|(one, &place)| one.to_bits() == all[place as usize].to_bits())
                );
                let kept = |least: f32| cosines.iter().filter(|&&one| one >= least).count();
                let wanted = |least: f32| all.iter().filter(|&&one| one >= least).count();
                assert_eq!(kept(sorted[count - 1]), wanted(sorted[count - 1]), "{dim} {spread} {count}");
                assert!(complete_from <= sorted[count - 1], "{dim} {spread} {count}");
                assert_eq!(kept(complete_from), wanted(complete_from), "{dim} {spread} {count}");
            }
        }
    }

    #[test]
    fn no_cosine_by_a_code_is_further_off_than_it_says() {
        let all = |dim: usize, of: fn(usize) -> f32| (0..dim).map(of).collect::<Vec<f32>>();
        for dim in [1, 31, 32, 33, 256, 4096, 30_000] {
            let shapes = [
                all(dim, |_| 1.0),
                all(dim, |_| -0.3),
                all(dim, |at| if at == 0 { 1e3 } else { 0.49 * 1e3 / 127.0 }),
                all(dim, |at| if at == 0 { 1e3 } else { 0.51 * 1e3 / 127.0 }),
                all(dim, |at| 1.0 / (1 + at) as f32),
                all(dim, |at| 1.0 + (at % 7) as f32 * f32::EPSILON),
                all(dim, |at| 1e30 * ((at * 7919) % 101) as f32),
                all(dim, |at| 1e-30 * ((at * 7919) % 103) as f32 - 5e-29),
                all(dim, |at| f32::from_bits((at * 31 % 97) as u32)),
                all(dim, |_| 0.0),
            ];
            let mut vectors = Vectors::new(dim);
            shapes.iter().zip(0..).for_each(|(shape, at)| vectors.put(at, shape));
            let rows: Vec<_> = (0..shapes.len() as u32).collect();
            for asked in &shapes {
                let asked = unit(asked, vectors.stride);
                let (mut near, mut right) = (vec![0; rows.len()], vec![0.0; rows.len()]);
                let (code, own) = encode_query(&asked);
                code_products(&vectors.codes, vectors.stride, &rows, &code, &mut near);
                products(&vectors.rows, vectors.stride, &rows, &asked, &mut right);
                for ((near, right), bound) in near.iter().zip(&right).zip(&vectors.bounds) {
                    let near = *near as f32 * bound.scale * own.scale;
                    assert!((near - right).abs() <= bound.error + own.error, "{dim}: {near} {right} {bound:?} {own:?}");
                }
            }
        }
    }

    #[test]
    fn a_forgotten_vector_is_overwritten_and_the_others_stay() {
        let mut vectors = Vectors::new(3);
        (0..5).for_each(|at| vectors.put(at, &vector(at + 1, 3)));
        let before: Vec<_> = [0, 2, 4].map(|at| vectors.numbers(vectors.row(at).unwrap() as usize).to_vec()).into();
        assert_eq!(vectors.forget([1, 3, 99].into_iter()), 2);
        assert_eq!((vectors.len(), vectors.row(1), vectors.row(3)), (3, None, None));
        let after: Vec<_> = [0, 2, 4].map(|at| vectors.numbers(vectors.row(at).unwrap() as usize).to_vec()).into();
        assert_eq!(before, after);
        vectors.put(4, &[0.0, 0.0, 2.0]);
        assert_eq!((vectors.len(), vectors.numbers(vectors.row(4).unwrap() as usize)), (3, &[0.0, 0.0, 1.0][..]));
    }
}
