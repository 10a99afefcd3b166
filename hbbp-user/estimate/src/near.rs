//! Far branches: stacks hold them, and most events do not count them.
//!
//! Intel's event counts near taken branches, and so the stacks are taken at near ones; but the stacks hold system calls,
//! returns from them and interrupts as well (SDM vol. 3, "Last branch, interrupt, and exception recording").
//! What is estimated from streams is compared with the count of the event without the far ones.

use super::Stream;
use hbbp_code::blocks::{BlockMap, Flow};
use hbbp_model::snapshot::{Event, EventIdx};

/// Whether all of these events are known to count near branches only.
pub fn near_only(events: &[Event], lbr: &[EventIdx]) -> bool {
    let near = |event: &EventIdx| events.get(event.0 as usize).is_some_and(|event| event.near_only);
    !lbr.is_empty() && lbr.iter().all(near)
}

/// Whether a near taken branch ended the stream, not a far one, nor an interrupt or exception.
pub fn ends_near(stream: &Stream, map: &BlockMap) -> bool {
    let source = map
        .text(stream.text)
        .and_then(|text| text.instruction(stream.source));
    let far = source
        .is_none_or(|source| matches!(source.flow, Flow::SystemCall | Flow::InterruptReturn | Flow::Trap));
    stream.end != stream.source && !far
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::{Located, TextIdx};
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Snapshot, Text};

    #[test]
    fn far_branches_and_interrupts_end_no_stream_near() {
        let text = Text {
            module: ModuleIdx(0),
            start: ImageAddr(0x1000),
            // ret; syscall; iretq; ud2
            bytes: vec![0xc3, 0x0f, 0x05, 0x48, 0xcf, 0x0f, 0x0b],
            since: 0,
        };
        let snapshot = Snapshot {
            text: vec![text],
            ..Snapshot::default()
        };
        let map = blocks(&snapshot, &Located::default());
        let is_near = |source, end| {
            let stream = Stream {
                text: TextIdx(0),
                process: ProcessIdx(0),
                first: 0,
                end,
                source,
                hits: 1,
                weight: 1.0,
            };
            ends_near(&stream, &map)
        };
        let near = [0, 1, 2, 3].map(|source| is_near(source, source + 1));
        assert_eq!(near, [true, false, false, false]);
        // An interrupt came before the instruction ran.
        assert!(!is_near(0, 0));
    }

    #[test]
    fn the_name_of_an_event_says_nothing() {
        let event = |name: &str, near_only| Event {
            name: name.to_owned(),
            near_only,
            ..Event::default()
        };
        let events = [event("mine", true), event("BR_INST_RETIRED.NEAR_TAKEN", false)];
        assert!(near_only(&events, &[EventIdx(0)]));
        assert!(!near_only(&events, &[EventIdx(1)]) && !near_only(&events, &[]));
        assert!(!near_only(&events, &[EventIdx(0), EventIdx(1)]));
    }
}
