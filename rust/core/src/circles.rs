//! Which memories derive from themselves, directly or by way of others.

/// The groups of things that depend on each other in circles, what a group
/// depends on before the group itself. A thing on no circle is a group of its own.
///
/// `edge(i, k)` is the `k`-th thing that `i` depends on, `None` past the last.
/// O(things + edges), without recursion.
/// Source: Tarjan, "Depth-first search and linear graph algorithms", SIAM Journal on Computing 1(2), 1972.
pub fn groups(things: usize, edge: impl Fn(usize, usize) -> Option<usize>) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    const DONE: usize = usize::MAX - 1;
    let mut low = vec![NEW; things];
    let mut out = Vec::new();
    let mut held = Vec::new();
    let mut order = 0;
    for first in 0..things {
        if low[first] != NEW {
            continue;
        }
        let mut walk = vec![(first, 0, order)];
        low[first] = order;
        held.push(first);
        order += 1;
        while let Some((at, next, entered)) = walk.pop() {
            if let Some(to) = edge(at, next) {
                walk.push((at, next + 1, entered));
                if low[to] == NEW {
                    low[to] = order;
                    held.push(to);
                    walk.push((to, 0, order));
                    order += 1;
                } else if low[to] != DONE {
                    low[at] = low[at].min(low[to]);
                }
                continue;
            }
            if low[at] == entered {
                let start = held.iter().rposition(|&thing| thing == at).unwrap_or(0);
                let group = held.split_off(start);
                group.iter().for_each(|&thing| low[thing] = DONE);
                out.push(group);
            } else if let Some(&(above, _, _)) = walk.last() {
                low[above] = low[above].min(low[at]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every graph of four things, against reachability.
    #[test]
    fn groups_are_what_reaches_each_other() {
        for graph in 0..1_u32 << 16 {
            let has = |from: usize, to: usize| graph & 1 << (from * 4 + to) != 0;
            let mut reach = [[false; 4]; 4];
            for (from, row) in reach.iter_mut().enumerate() {
                for (to, cell) in row.iter_mut().enumerate() {
                    *cell = from == to || has(from, to);
                }
            }
            for via in 0..4 {
                let onward = reach[via];
                for row in reach.iter_mut().filter(|row| row[via]) {
                    row.iter_mut().zip(onward).for_each(|(cell, reached)| *cell |= reached);
                }
            }
            let groups = groups(4, |from, k| (0..4).filter(|&to| has(from, to)).nth(k));
            let group_of = |thing| groups.iter().position(|group| group.contains(&thing)).unwrap();
            for (from, to) in (0..16).map(|pair| (pair / 4, pair % 4)) {
                assert_eq!(group_of(from) == group_of(to), reach[from][to] && reach[to][from]);
                assert!(!has(from, to) || group_of(to) <= group_of(from));
            }
        }
    }
}
