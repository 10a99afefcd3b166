//! Where bursts end, and the branches that they have taken until then.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: what cannot be made fails the test"
)]

use hbbp_emulate::{Branch, End, Limits, Machine, Value};

const TEXT: u64 = 0x40_1000;
const STACK: u64 = 0x7ffd_0000_0800;
const LIMITS: Limits = Limits {
    branches: 8,
    steps: 1000,
};

/// A thread at this code, with its registers at 0 and its stack pointer on a page that was not read.
fn machine(text: &[u8]) -> Machine {
    let mut machine = Machine::new(TEXT);
    machine.memory.add_text(TEXT, text).unwrap();
    machine.registers = [Value::known(0); 16];
    machine.registers[4] = Value::known(STACK);
    machine.flags = Value::known(0x202);
    machine
}

#[track_caller]
fn ends(mut machine: Machine, end: End, at: u64) -> Machine {
    assert_eq!(machine.run(LIMITS), end);
    assert_eq!(machine.rip, TEXT + at, "{:x}", machine.rip);
    machine
}

#[test]
fn each_reason_ends_a_burst_before_its_instruction() {
    let cases: [(&[u8], End, u64); 14] = [
        // syscall; int3; ud2
        (&[0x90, 0x0f, 0x05], End::SystemCall, 1),
        (&[0xcc], End::Trap, 0),
        (&[0x0f, 0x0b], End::Trap, 0),
        // retf; hlt; in al, dx
        (&[0xcb], End::FarBranch, 0),
        (&[0xf4], End::Privileged, 0),
        (&[0xec], End::Privileged, 0),
        // div ecx by 0
        (&[0xf7, 0xf1], End::Fault, 0),
        // mov byte ptr [rip], 1, which writes itself
        (&[0xc6, 0x05, 0, 0, 0, 0, 1, 0x90], End::WroteText, 0),
        // mov eax, [rax]; je
        (&[0x8b, 0x00, 0x85, 0xc0, 0x74, 0x00], End::UnknownBranch, 4),
        // mov rax, [rax]; mov [rax], cl
        (&[0x48, 0x8b, 0x00, 0x88, 0x08], End::UnknownAddress, 3),
        // ret to an address that was not read
        (&[0xc3], End::UnknownBranch, 0),
        // fxsave [rcx]
        (&[0x0f, 0xae, 0x01], End::NotEmulated, 0),
        // An opcode that no processor has in 64-bit code, with bytes after it.
        (
            &[
                0x06, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
            ],
            End::NoInstruction,
            0,
        ),
        // APX: add r16, r17
        (&[0xd5, 0x58, 0x01, 0xc8, 0x90], End::NotEmulated, 0),
    ];
    for (text, end, at) in cases {
        ends(machine(text), end, at);
    }
}

#[test]
fn each_reason_has_a_sentence_of_its_own() {
    let ends = [
        End::Branches,
        End::Steps,
        End::SystemCall,
        End::Trap,
        End::FarBranch,
        End::Privileged,
        End::Fault,
        End::UnknownBranch,
        End::UnknownAddress,
        End::TextNotRead(0x1000),
        End::WroteText,
        End::TooManyPages,
        End::NoInstruction,
        End::NotEmulated,
    ];
    let mut sentences: Vec<String> = ends.iter().map(End::to_string).collect();
    sentences.sort();
    sentences.dedup();
    assert_eq!(sentences.len(), ends.len());
}

#[test]
fn branches_are_those_that_were_taken() {
    // mov ecx, 3; dec ecx; jne -4; call +0; jmp -2
    let text = [
        0xb9, 3, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xe8, 0, 0, 0, 0, 0xeb, 0xfe,
    ];
    let machine = ends(machine(&text), End::Branches, 14);
    let branch = |from: u64, to: u64| Branch {
        from: TEXT + from,
        to: TEXT + to,
    };
    let [back, call, jump] = [branch(7, 5), branch(9, 14), branch(14, 14)];
    assert_eq!(machine.branches()[..3], [back, back, call]);
    assert_eq!(machine.branches()[3..], [jump; 5]);
}

#[test]
fn a_burst_goes_on_when_its_text_is_added() {
    // jmp to the next page; there: syscall
    let mut machine = machine(&[0xe9, 0xfb, 0x0f, 0, 0]);
    assert_eq!(machine.run(LIMITS), End::TextNotRead(TEXT + 0x1000));
    machine.memory.add_text(TEXT + 0x1000, &[0x0f, 0x05]).unwrap();
    let machine = ends(machine, End::SystemCall, 0x1000);
    assert_eq!(machine.branches().len(), 1);
}

#[test]
fn an_instruction_that_is_cut_asks_for_its_rest() {
    let mut machine = machine(&[0x48, 0x8b]);
    assert_eq!(machine.run(LIMITS), End::TextNotRead(TEXT + 2));
}

#[test]
fn pages_that_were_missing_are_named() {
    // mov rax, [rsp]; xor eax, eax; je +0; syscall
    let text = [0x48, 0x8b, 0x04, 0x24, 0x31, 0xc0, 0x74, 0, 0x0f, 0x05];
    let machine = ends(machine(&text), End::SystemCall, 8);
    assert_eq!(machine.memory.missing().collect::<Vec<_>>(), [STACK & !0xfff]);
}

#[test]
fn a_fill_of_all_memory_is_bounded() {
    // mov rcx, -1; mov rdi, 0x3fe000; rep stosb
    let mut machine = machine(&[
        0x48, 0xc7, 0xc1, 0xff, 0xff, 0xff, 0xff, 0x48, 0xc7, 0xc7, 0, 0xe0, 0x3f, 0, 0xf3, 0xaa,
    ]);
    assert_eq!(machine.run(LIMITS), End::Steps);
    let limits = Limits {
        steps: u64::MAX,
        ..LIMITS
    };
    assert_eq!(machine.run(limits), End::WroteText);
}
