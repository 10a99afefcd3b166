//! Which process images ran the kernel's streams.
//!
//! The kernel is one program that all processes run: how its streams follow each other, and how often each ran, is
//! estimated once for the system, from all that was seen of it. What each process image has of a stream is then the share
//! of the occurrences that were seen in its stacks.

use super::stream::Stream;
use crate::EventAssignment;
use crate::sums::over;
use hbbp_code::locate::{Located, LocatedStream, TextIdx};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{EventIdx, ProcessIdx};

/// The occurrences of kernel streams by process image. None where a profile has them once for the system.
#[derive(Debug, Default)]
pub(crate) struct KernelShares {
    /// Sorted by stream and process, once they are those that serve.
    shares: Vec<Share>,
}

/// The occurrences of a stream in the stacks of one process image.
#[derive(Clone, Copy, Debug)]
struct Share {
    event: EventIdx,
    text: TextIdx,
    first: u32,
    source: u32,
    process: ProcessIdx,
    hits: u64,
    weight: f64,
}

impl Share {
    /// The stream, which has one end for each source.
    const fn key(&self) -> (TextIdx, u32, u32) {
        (self.text, self.first, self.source)
    }
}

impl KernelShares {
    /// Whether kernel streams were recorded by process image.
    pub(super) fn are_in(located: &Located, ring_of: impl Fn(TextIdx) -> Ring) -> bool {
        let of_images = |it: &&LocatedStream| it.process != ProcessIdx::KERNEL;
        let mut texts = located.streams.iter().filter(of_images).map(|it| it.start.text);
        texts.any(|text| ring_of(text) == Ring::Kernel)
    }

    /// Adds the occurrences of a kernel stream that was recorded by process image.
    pub(super) fn add(&mut self, event: EventIdx, stream: &Stream) {
        // What a profile that was made up weighs may be any number.
        let weight = stream.weight.max(0.0);
        self.shares.push(Share {
            event,
            text: stream.text,
            first: stream.first,
            source: stream.source,
            process: stream.process,
            hits: stream.hits,
            weight: if weight.is_finite() { weight } else { 0.0 },
        });
    }

    /// Keeps those of the events that serve as LBR, each process image once for each stream.
    pub(super) fn serving(mut self, assignment: &EventAssignment) -> Self {
        self.shares.retain(|share| assignment.uses_stacks_of(share.event));
        self.shares.sort_by_key(|share| (share.key(), share.process));
        self.shares.dedup_by(|next, kept| {
            let is_same = (next.key(), next.process) == (kept.key(), kept.process);
            if is_same {
                kept.hits = kept.hits.saturating_add(next.hits);
                kept.weight += next.weight;
            }
            is_same
        });
        self
    }

    /// Whether no stream is known by process image.
    pub(super) const fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// The shares of a stream; none where it is user code, or counted once for the system.
    fn of(&self, stream: &Stream) -> &[Share] {
        if stream.process != ProcessIdx::KERNEL {
            return &[];
        }
        let key = (stream.text, stream.first, stream.source);
        let from = self.shares.partition_point(|share| share.key() < key);
        let of_stream = self.shares.get(from..).unwrap_or_default();
        let n = of_stream.partition_point(|share| share.key() == key);
        of_stream.get(..n).unwrap_or_default()
    }

    /// The streams with those of the kernel divided between the process images that ran them, sorted by (text, process).
    pub(super) fn divided(&self, streams: &[Stream]) -> Vec<Stream> {
        let mut all = Vec::with_capacity(streams.len());
        for stream in streams {
            let shares = self.of(stream);
            let whole: f64 = shares.iter().map(|share| share.weight).sum();
            if whole <= 0.0 {
                all.push(*stream);
                continue;
            }
            all.extend(shares.iter().map(|share| Stream {
                process: share.process,
                hits: share.hits,
                weight: stream.weight * over(share.weight, whole),
                ..*stream
            }));
        }
        all.sort_by_key(|stream| (stream.text, stream.process));
        all
    }

    /// The process image that a resampled stack ran a stream in: `own`, which ran its user code, where that has a share, else
    /// one by its share, at a `fraction` of all.
    pub(super) fn drawn(&self, stream: &Stream, own: Option<ProcessIdx>, fraction: f64) -> ProcessIdx {
        let shares = self.of(stream);
        if let Some(own) = own.filter(|own| shares.iter().any(|share| share.process == *own)) {
            return own;
        }
        let whole: f64 = shares.iter().map(|share| share.weight).sum();
        let mut passed = 0.0;
        let drawn = shares.iter().find(|share| {
            passed += share.weight;
            fraction * whole < passed
        });
        drawn.map_or(stream.process, |share| share.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use proptest::prelude::*;

    const EVENT: EventIdx = EventIdx(0);

    fn stream(process: u32, first: u32, hits: u64, weight: f64) -> Stream {
        Stream {
            text: TextIdx(0),
            process: ProcessIdx(process),
            first,
            end: first + 2,
            source: first + 1,
            hits,
            weight,
        }
    }

    fn shares(seen: &[Stream]) -> KernelShares {
        let mut shares = KernelShares::default();
        for stream in seen {
            shares.add(EVENT, stream);
        }
        shares.serving(&EventAssignment {
            ebs: Vec::new(),
            lbr: vec![EVENT],
            unit: Unit::Executions,
        })
    }

    #[test]
    fn streams_are_divided_by_what_was_seen_of_each() {
        let seen = [
            stream(1, 0, 3, 30.0),
            stream(2, 0, 1, 10.0),
            stream(2, 8, 5, 50.0),
        ];
        // Twice as many ran as were seen, and of one nothing is known by process.
        let ran = [
            stream(0, 0, 4, 80.0),
            stream(0, 4, 1, 7.0),
            stream(0, 8, 5, 100.0),
            stream(3, 0, 1, 2.0),
        ];
        let divided = shares(&seen).divided(&ran);
        let expected = [
            stream(0, 4, 1, 7.0),
            stream(1, 0, 3, 60.0),
            stream(2, 0, 1, 20.0),
            stream(2, 8, 5, 100.0),
            stream(3, 0, 1, 2.0),
        ];
        assert_eq!(divided, expected);
    }

    #[test]
    fn without_shares_nothing_is_divided() {
        let ran = [stream(0, 0, 4, 80.0), stream(1, 4, 1, 7.0)];
        assert_eq!(KernelShares::default().divided(&ran), ran);
        let made_up = [
            stream(1, 0, 1, -1.0),
            stream(2, 0, 1, f64::NAN),
            stream(3, 0, 1, f64::INFINITY),
        ];
        assert_eq!(shares(&made_up).divided(&ran), ran);
    }

    #[test]
    fn a_stack_is_of_the_process_whose_user_code_it_has() {
        let seen = [stream(1, 0, 3, 30.0), stream(2, 0, 1, 10.0)];
        let (shares, ran) = (shares(&seen), stream(0, 0, 4, 40.0));
        let drawn = |own: Option<u32>, fraction| shares.drawn(&ran, own.map(ProcessIdx), fraction).0;
        assert_eq!([drawn(Some(2), 0.1), drawn(Some(1), 0.9)], [2, 1]);
        assert_eq!([drawn(None, 0.7), drawn(Some(3), 0.8)], [1, 2]);
        assert_eq!(shares.drawn(&stream(5, 0, 1, 1.0), None, 0.0).0, 5, "user code");
    }

    proptest! {
        /// By process or not, a stream ran as often.
        #[test]
        fn shares_sum_to_the_whole(
            seen in prop::collection::vec((0u32..4, 0u32..5, 1u64..9, 0.0f64..9.0), 0..40),
            ran in prop::collection::btree_map(0u32..5, 0.0f64..1e9, 0..5),
        ) {
            let seen: Vec<Stream> = seen.into_iter().map(|(p, first, hits, w)| stream(p, first, hits, w)).collect();
            let ran: Vec<Stream> = ran.into_iter().map(|(first, weight)| stream(0, first, 1, weight)).collect();
            let divided = shares(&seen).divided(&ran);
            for whole in &ran {
                let parts = divided.iter().filter(|part| part.first == whole.first);
                let sum: f64 = parts.map(|part| part.weight).sum();
                prop_assert!((sum - whole.weight).abs() <= 1e-12 * whole.weight);
            }
            prop_assert!(divided.is_sorted_by_key(|stream| (stream.text, stream.process)));
        }
    }
}
