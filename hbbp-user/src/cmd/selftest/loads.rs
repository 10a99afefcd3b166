//! The loads: code whose faults of sampling differ, each with exact executions.
//!
//! A load is called as a C function, with memory of its own and the descriptor of /dev/zero, and keeps to the registers that
//! a function may change.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::program::{Builder, KernelCalls, Program};

/// Memory of a load in bytes: what a read of /dev/zero fills.
pub(super) const MEMORY: u32 = 1 << 16;

/// Targets of indirect calls; a power of two, as the next one is found by a mask.
const TARGETS: u32 = 16;

/// All loads that this processor can run. Each call of one runs its loops `rounds` times as long as the shortest.
pub(super) fn program(address: u64, rounds: u32) -> Result<Program, IcedError> {
    let mut it = Builder::new()?;
    it.load("nested_loops", None, |it| nested_loops(it, rounds))?;
    it.load("one_block_loops", None, |it| one_block_loops(it, rounds))?;
    it.load("short_blocks", None, |it| short_blocks(it, rounds))?;
    it.load("call_chains", None, |it| call_chains(it, rounds))?;
    it.load("indirect_calls", None, |it| indirect_calls(it, rounds))?;
    it.load("divisions", None, |it| divisions(it, rounds))?;
    it.load("long_blocks", None, |it| long_blocks(it, rounds))?;
    it.load("strings", None, |it| strings(it, rounds))?;
    it.load("vectors_128", None, |it| vectors_128(it, rounds))?;
    if is_x86_feature_detected!("avx2") {
        it.load("vectors_256", None, |it| vectors_256(it, rounds))?;
    }
    if is_x86_feature_detected!("avx512f") {
        it.load("vectors_512", None, |it| vectors_512(it, rounds))?;
    }
    // A call that does next to nothing, and that other programs seldom make.
    let bare = KernelCalls {
        function: "__x64_sys_getppid",
        calls: u64::from(4 * rounds),
    };
    it.load("bare_calls", Some(bare), |it| bare_calls(it, 4 * rounds))?;
    let reads = KernelCalls {
        function: "read_zero",
        calls: u64::from(rounds),
    };
    it.load("zero_reads", Some(reads), |it| zero_reads(it, rounds))?;
    it.assemble(address)
}

fn nested_loops(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.repeat(r8, rounds, |it| {
        it.add(|code| code.add(rax, 3))?;
        it.repeat(r9, 7, |it| {
            it.repeat(r10, 23, |it| {
                it.add(|code| {
                    code.add(rax, r10)?;
                    code.xor(rdx, rax)
                })
            })?;
            it.add(|code| {
                code.imul_2(rdx, r9)?;
                code.sub(rax, rdx)
            })
        })
    })?;
    it.add(|code| code.ret())
}

fn one_block_loops(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.repeat(r8, 211 * rounds, |it| it.add(|code| code.add(rax, r8)))?;
    it.repeat(r9, 97 * rounds, |it| {
        it.add(|code| {
            for n in 1..8 {
                code.rol(rax, n)?;
                code.xor(rdx, rax)?;
            }
            Ok(())
        })
    })?;
    it.add(|code| code.ret())
}

/// Blocks of few instructions between branches that are taken and not taken in turn.
fn short_blocks(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.repeat(r8, 40 * rounds, |it| {
        it.each_second(r8, |it| it.add(|code| code.add(rax, 1)))?;
        it.add(|code| code.inc(rdx))?;
        it.each_second(r8, |it| it.add(|code| code.xor(rdx, rax)))?;
        it.repeat(r9, 3, |it| it.add(|code| code.lea(rax, ptr(rax + rdx))))
    })?;
    it.add(|code| code.ret())
}

fn call_chains(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    let mut functions = [it.label(), it.label(), it.label(), it.label()];
    let trips = 30 * rounds;
    let [first, ..] = functions;
    it.repeat(r8, trips, |it| it.add(|code| code.call(first)))?;
    it.add(|code| code.ret())?;
    let next: Vec<_> = functions
        .iter()
        .copied()
        .skip(1)
        .map(Some)
        .chain([None])
        .collect();
    for (label, next) in functions.iter_mut().zip(next) {
        it.function(label, u64::from(trips), |it| {
            it.add(|code| {
                code.add(rax, r8)?;
                if let Some(next) = next {
                    code.call(next)?;
                    code.xor(rdx, rax)?;
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// The targets come in a fixed order in which each comes as often: multiplication by 5 and addition of 3 goes through all numbers
/// below a power of two.
fn indirect_calls(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    let mut targets: Vec<_> = (0..TARGETS).map(|_| it.label()).collect();
    it.add(|code| {
        for (slot, target) in (0i32..).zip(&targets) {
            code.lea(rax, ptr(*target))?;
            code.mov(ptr(rdi + 8 * slot), rax)?;
        }
        code.xor(edx, edx)
    })?;
    it.repeat(r8, 3 * TARGETS * rounds, |it| {
        it.add(|code| {
            code.lea(rdx, ptr(rdx + rdx * 4 + 3))?;
            code.and(rdx, TARGETS as i32 - 1)?;
            code.call(qword_ptr(rdi + rdx * 8))
        })
    })?;
    it.add(|code| code.ret())?;
    for (target, n) in targets.iter_mut().zip(0..) {
        it.function(target, u64::from(3 * rounds), |it| {
            it.add(|code| {
                for _ in 0..=n % 5 {
                    code.add(rax, n)?;
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// A division, and instructions after it that imprecise samples fall on.
fn divisions(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.add(|code| code.mov(ecx, 0x1_0001))?;
    it.repeat(r8, 20 * rounds, |it| {
        it.add(|code| {
            code.mov(eax, 0x7654_3210)?;
            code.xor(edx, edx)?;
            code.div(ecx)?;
            for _ in 0..6 {
                code.add(r9, 1)?;
                code.xor(r10, r9)?;
            }
            Ok(())
        })
    })?;
    it.add(|code| code.ret())
}

fn long_blocks(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.repeat(r8, 3 * rounds, |it| {
        it.add(|code| {
            for n in 0..40 {
                code.add(rax, n)?;
                code.xor(rdx, rax)?;
                code.lea(rcx, ptr(rdx + rax))?;
                code.shr(rcx, 3)?;
                code.mov(ptr(rdi + 8 * n), rcx)?;
            }
            Ok(())
        })
    })?;
    it.add(|code| code.ret())
}

/// Instructions with a REP prefix retire once, whatever their count.
fn strings(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.add(|code| code.mov(r9, rdi))?;
    it.repeat(r8, 6 * rounds, |it| {
        it.add(|code| {
            code.mov(rdi, r9)?;
            code.mov(ecx, 24)?;
            code.rep().stosq()?;
            code.mov(rsi, r9)?;
            code.lea(rdi, ptr(r9 + 4096))?;
            code.mov(ecx, 100)?;
            code.rep().movsb()
        })
    })?;
    it.add(|code| code.ret())
}

fn vectors_128(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.add(|code| code.xorps(xmm0, xmm0))?;
    it.repeat(r8, 40 * rounds, |it| {
        it.add(|code| {
            code.movups(xmm1, ptr(rdi))?;
            code.addps(xmm0, xmm1)?;
            code.mulps(xmm1, xmm0)?;
            code.pxor(xmm2, xmm1)?;
            code.movups(ptr(rdi), xmm2)
        })
    })?;
    it.add(|code| code.ret())
}

fn vectors_256(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.add(|code| code.vxorps(ymm0, ymm0, ymm0))?;
    it.repeat(r8, 40 * rounds, |it| {
        it.add(|code| {
            code.vmovups(ymm1, ptr(rdi))?;
            code.vaddps(ymm0, ymm0, ymm1)?;
            code.vpaddd(ymm2, ymm1, ymm0)?;
            code.vpxor(ymm3, ymm2, ymm1)?;
            code.vmovups(ptr(rdi), ymm3)
        })
    })?;
    it.add(|code| {
        code.vzeroupper()?;
        code.ret()
    })
}

fn vectors_512(it: &mut Builder, rounds: u32) -> Result<(), IcedError> {
    it.add(|code| code.vpxord(zmm0, zmm0, zmm0))?;
    it.repeat(r8, 40 * rounds, |it| {
        it.add(|code| {
            code.vmovups(zmm1, ptr(rdi))?;
            code.vaddps(zmm0, zmm0, zmm1)?;
            code.vpaddd(zmm2, zmm1, zmm0)?;
            code.vpxord(zmm3, zmm2, zmm1)?;
            code.vmovups(ptr(rdi), zmm3)
        })
    })?;
    it.add(|code| {
        code.vzeroupper()?;
        code.ret()
    })
}

/// The number of a system call (arch/x86/entry/syscalls/syscall_64.tbl).
const GETPPID: u32 = 110;
/// As [`GETPPID`].
const READ: u32 = 0;

fn bare_calls(it: &mut Builder, calls: u32) -> Result<(), IcedError> {
    it.repeat(r8, calls, |it| {
        it.add(|code| {
            code.mov(eax, GETPPID)?;
            code.syscall()
        })
    })?;
    it.add(|code| code.ret())
}

fn zero_reads(it: &mut Builder, calls: u32) -> Result<(), IcedError> {
    it.add(|code| code.xchg(rdi, rsi))?;
    it.repeat(r8, calls, |it| {
        it.add(|code| {
            code.mov(edx, MEMORY)?;
            code.mov(eax, READ)?;
            code.syscall()
        })
    })?;
    it.add(|code| code.ret())
}
