//! Clever against plain: the same question asked in two ways, on random logs.
//!
//! Engine and reference are held together from Python; here each structure is
//! held against its plain twin, on logs in which everything goes wrong.

use crate::encode::{memory_skeleton, message_skeleton};
use crate::engine::Engine;
use crate::ids::{Mem, Node};
use crate::reason::{OTHER_TREE, Reasons};
use crate::visible::Visible;
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;

/// A message with the place of its parent, or a memory with sources and upstreams by place.
#[derive(Clone, Debug)]
enum Made {
    Message(usize),
    Memory(Vec<usize>, Vec<usize>),
}

fn made() -> impl Strategy<Value = Made> {
    let places = || prop::collection::vec(0_usize..40, 0..4);
    prop_oneof![
        2 => (0_usize..40).prop_map(Made::Message),
        1 => (places(), places()).prop_map(|(sources, upstreams)| Made::Memory(sources, upstreams)),
    ]
}

/// Skeletons in which ids of the wrong type, missing ones, circles and legacy messages occur.
fn skeletons(log: &[Made]) -> Vec<Vec<u8>> {
    let id = |place: usize| format!("{place:02}");
    let sorted = |places: &[usize]| {
        let mut ids: Vec<_> = places.iter().map(|&place| id(place)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let skeleton = |(place, made): (usize, &Made)| match made {
        Made::Message(0) => message_skeleton(&id(place), Some(None)),
        Made::Message(1) => message_skeleton(&id(place), None),
        // Mostly near the end of what is there, as in a chat.
        Made::Message(at) => {
            let parent = if *at < 30 { id(place.saturating_sub(at / 8 + 1)) } else { id(*at) };
            message_skeleton(&id(place), Some(Some(&parent)))
        }
        Made::Memory(sources, upstreams) => {
            let (sources, upstreams) = (sorted(sources), sorted(upstreams));
            let sources: Vec<_> = sources.iter().map(String::as_str).collect();
            let upstreams: Vec<_> = upstreams.iter().map(String::as_str).collect();
            memory_skeleton(&id(place), &sources, &upstreams, None, None)
        }
    };
    log.iter().enumerate().map(skeleton).collect()
}

fn folded(skeletons: &[&[u8]], batch: usize, prepare: bool) -> Engine {
    let mut engine = Engine::new(1);
    for batch in skeletons.chunks(batch) {
        for (first_seq, block) in engine.encode(batch).unwrap() {
            engine.fold(first_seq, &block).unwrap();
        }
        if prepare {
            engine.prepare();
        }
    }
    engine.update();
    engine
}

fn set(visible: &Visible, len: usize) -> Vec<bool> {
    let mut out = vec![false; len];
    visible.ordinals().into_iter().for_each(|mem| out[mem as usize] = true);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Walk, scan, pairs, single reasons, all reasons and explanations agree at every message and
    /// at pairs of messages, however the log was cut and whenever the tour was frozen.
    #[test]
    fn every_way_to_ask_gives_one_answer(
        log in prop::collection::vec(made(), 1..40),
        order in prop::collection::vec(any::<u32>(), 40),
        batch in 1_usize..9,
        prepare in any::<bool>(),
    ) {
        let all = skeletons(&log);
        let mut shuffled: Vec<_> = all.iter().zip(order).collect();
        shuffled.sort_by_key(|&(_, key)| key);
        let shuffled: Vec<&[u8]> = shuffled.into_iter().map(|(skeleton, _)| &**skeleton).collect();
        let engine = folded(&shuffled, batch, prepare);
        let mems = engine.memories().len();
        let nodes: Vec<_> = (0..engine.forest().len() as u32).map(Node).collect();
        let numbers: Vec<_> = nodes.iter().map(|&node| Some(engine.ids().of_message(node))).collect();
        let pairs = numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| vec![a, b]));
        let anchors = std::iter::once(vec![]).chain(numbers.iter().map(|&a| vec![a])).chain(pairs.step_by(7));
        for anchors in anchors {
            let Ok(stand) = engine.stand(&anchors) else { continue };
            let reasons = engine.all_reasons(&stand);
            for (at, &expected) in reasons.iter().enumerate() {
                let mem = Mem(at as u32);
                prop_assert_eq!(engine.reasons(Some(mem), &stand), expected);
                prop_assert_eq!(engine.explain(mem, &stand).reasons, expected);
                let by_tour = engine.reasons_by_tour(mem, &stand);
                prop_assert!(by_tour.is_none_or(|reasons| reasons == expected));
            }
            let strict: Vec<_> = reasons.iter().map(|&reasons| reasons == 0).collect();
            prop_assert_eq!(&set(&engine.answer(&stand, 0).visible, mems), &strict);
            if let Some(answer) = engine.walk(&stand) {
                prop_assert_eq!(&set(&answer.visible, mems), &strict);
            }
            if stand.is_usable() {
                prop_assert_eq!(&set(&engine.scan(&stand), mems), &strict);
            }
            for policy in [0x0761_u16, OTHER_TREE | 0x0400, Reasons::MAX] {
                let shown: Vec<_> = reasons.iter().map(|&reasons| reasons & !policy == 0).collect();
                prop_assert_eq!(&set(&engine.answer(&stand, policy).visible, mems), &shown);
            }
        }
        for policy in [0, 0x0761] {
            let pairs: Vec<_> =
                (0..=mems as u32).flat_map(|mem| (0..=nodes.len() as u32).map(move |node| (mem, node))).collect();
            let (of, at): (Vec<_>, Vec<_>) =
                pairs.iter().map(|&(mem, node)| (AtomicU32::new(mem), AtomicU32::new(node))).unzip();
            let mut visible = vec![2; pairs.len()];
            engine.pairs(&of, &at, policy, &mut visible);
            for (&(mem, node), visible) in pairs.iter().zip(visible) {
                let number = numbers.get(node as usize).copied().flatten();
                let stand = engine.stand(&[number]).unwrap();
                let mem = ((mem as usize) < mems).then_some(Mem(mem));
                prop_assert_eq!(visible == 1, engine.reasons(mem, &stand) & !policy == 0);
            }
        }
    }

    /// The same events in another order, cut otherwise: the same reasons for every memory at every message.
    #[test]
    fn the_order_of_arrival_does_not_matter(
        log in prop::collection::vec(made(), 1..30),
        order in prop::collection::vec(any::<u32>(), 40),
        batch in 1_usize..9,
    ) {
        let all = skeletons(&log);
        let straight: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let mut shuffled: Vec<_> = straight.iter().zip(order).collect();
        shuffled.sort_by_key(|&(_, key)| key);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(&skeleton, _)| skeleton).collect();
        let (a, b) = (folded(&straight, 1000, false), folded(&shuffled, batch, true));
        for node in (0..a.forest().len() as u32).map(Node) {
            let id = a.ids().name(a.ids().of_message(node));
            let stand_a = a.stand(&[a.ids().find(id)]).unwrap();
            let stand_b = b.stand(&[b.ids().find(id)]).unwrap();
            let (all_a, all_b) = (a.all_reasons(&stand_a), b.all_reasons(&stand_b));
            for (at, &reasons) in all_a.iter().enumerate() {
                let number = b.ids().find(a.ids().name(a.memories().number(Mem(at as u32)))).unwrap();
                prop_assert_eq!(all_b[b.ids().memory(number).unwrap().at()], reasons);
            }
        }
    }
}

/// What hangs in the middle of a long chain, last first: found as if it had come in order.
#[test]
fn memories_that_arrive_backwards_are_found_in_order() {
    let messages = (0..300).map(|at| {
        let parent = (at > 0).then(|| format!("u{:03}", at - 1));
        message_skeleton(&format!("u{at:03}"), Some(parent.as_deref()))
    });
    let memories =
        (0..300).rev().map(|at| memory_skeleton(&format!("m{at:03}"), &[&format!("u{at:03}")], &[], None, None));
    let all: Vec<_> = messages.chain(memories).collect();
    let engine = folded(&all.iter().map(Vec::as_slice).collect::<Vec<_>>(), 7, false);
    for at in [0, 1, 7, 8, 9, 150, 298, 299] {
        let stand = engine.stand(&[engine.ids().find(&format!("u{at:03}"))]).unwrap();
        assert_eq!(engine.answer(&stand, 0).visible.len(), at + 1);
    }
}

/// Marks are made when the tour is frozen: what is derived of old messages after that must make it stale.
#[test]
fn memories_derived_later_make_a_frozen_tour_stale() {
    let messages = (0..40).map(|at| {
        let parent = (at > 0).then(|| format!("u{:02}", at - 1));
        message_skeleton(&format!("u{at:02}"), Some(parent.as_deref()))
    });
    let messages: Vec<_> = messages.collect();
    let mut engine = folded(&messages.iter().map(Vec::as_slice).collect::<Vec<_>>(), 7, true);
    assert!(engine.is_toured());
    let memories: Vec<_> =
        (0..40).map(|at| memory_skeleton(&format!("m{at:02}"), &[&format!("u{at:02}")], &[], None, None)).collect();
    for (first_seq, block) in engine.encode(&memories.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap() {
        engine.fold(first_seq, &block).unwrap();
    }
    assert!(!engine.is_toured());
}
