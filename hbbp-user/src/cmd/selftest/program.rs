//! Text whose executions are known from its construction: each instruction is added with how often it runs.

use std::ops::Range;

use iced_x86::code_asm::{AsmRegister64, CodeAssembler, CodeLabel};
use iced_x86::{BlockEncoderOptions, IcedError};

/// Text of several loads, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    /// The bytes, as they run at the address that they were assembled for.
    pub(super) text: Vec<u8>,
    /// The loads, in the order of their text.
    pub(super) loads: Vec<Load>,
}

/// A function that is called again and again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    /// Its name, and that of its symbol.
    pub(super) name: &'static str,
    /// Its instructions, with what they call.
    pub(super) instructions: Vec<Counted>,
    /// The function of the kernel that it calls, if it makes system calls.
    pub(super) kernel: Option<KernelCalls>,
}

/// An instruction, and how often it runs in each call of its load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    /// Where its bytes are in the text.
    pub(super) bytes: Range<usize>,
    /// Its executions; of a string instruction with a REP prefix one, whatever its count.
    pub(super) executions: u64,
}

/// Calls of a function of the kernel that each call of a load makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KernelCalls {
    /// Its symbol.
    pub(super) function: &'static str,
    /// How many.
    pub(super) calls: u64,
}

impl Load {
    /// Instructions that each call retires.
    pub(super) fn retired(&self) -> u64 {
        self.instructions.iter().map(|it| it.executions).sum()
    }
}

/// Adds instructions, each with its executions.
pub(super) struct Builder {
    code: CodeAssembler,
    /// Of each instruction so far.
    executions: Vec<u64>,
    /// Of what is added next.
    times: u64,
    /// Of each load its end, in instructions; what else is known of it is complete.
    loads: Vec<(usize, Load)>,
}

impl Builder {
    pub(super) fn new() -> Result<Self, IcedError> {
        Ok(Self {
            code: CodeAssembler::new(64)?,
            executions: Vec::new(),
            times: 1,
            loads: Vec::new(),
        })
    }

    /// Adds a load. It is entered by a call, and must return.
    pub(super) fn load(
        &mut self,
        name: &'static str,
        kernel: Option<KernelCalls>,
        body: impl FnOnce(&mut Self) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        body(self)?;
        let load = Load {
            name,
            instructions: Vec::new(),
            kernel,
        };
        self.loads.push((self.executions.len(), load));
        Ok(())
    }

    /// Adds instructions that run one after the other.
    pub(super) fn add(
        &mut self,
        instructions: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        instructions(&mut self.code)?;
        self.executions.resize(self.code.instructions().len(), self.times);
        Ok(())
    }

    /// Adds a loop with this many iterations, one at least, which the register counts down.
    pub(super) fn repeat(
        &mut self,
        counter: AsmRegister64,
        trips: u32,
        body: impl FnOnce(&mut Self) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        self.add(|code| code.mov(counter, u64::from(trips)))?;
        let mut head = self.code.create_label();
        self.code.set_label(&mut head)?;
        self.running(self.times * u64::from(trips), |it| {
            body(it)?;
            it.add(|code| {
                code.dec(counter)?;
                code.jne(head)
            })
        })
    }

    /// Adds what only each second iteration runs: those where the counter is odd. The loop must have an even number of them.
    pub(super) fn each_second(
        &mut self,
        counter: AsmRegister64,
        body: impl FnOnce(&mut Self) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        let mut after = self.label();
        self.add(|code| {
            code.test(counter, 1)?;
            code.je(after)
        })?;
        self.running(self.times / 2, body)?;
        self.code.set_label(&mut after)
    }

    /// Adds a function that is called this often.
    pub(super) fn function(
        &mut self,
        label: &mut CodeLabel,
        calls: u64,
        body: impl FnOnce(&mut Self) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        self.code.set_label(label)?;
        self.running(calls, |it| {
            body(it)?;
            it.add(CodeAssembler::ret)
        })
    }

    /// An address to jump to or to call.
    pub(super) fn label(&mut self) -> CodeLabel {
        self.code.create_label()
    }

    fn running(
        &mut self,
        times: u64,
        body: impl FnOnce(&mut Self) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        let outside = std::mem::replace(&mut self.times, times);
        body(self)?;
        self.times = outside;
        Ok(())
    }

    /// The text of all loads, for this address.
    pub(super) fn assemble(mut self, address: u64) -> Result<Program, IcedError> {
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let encoded = self.code.assemble_options(address, options)?.inner;
        let text = encoded.code_buffer;
        let starts = encoded.new_instruction_offsets.iter().map(|at| *at as usize);
        let ends = starts.clone().skip(1).chain([text.len()]);
        let counted = starts.zip(ends).zip(self.executions);
        let mut instructions = counted.map(|((start, end), executions)| Counted {
            bytes: start..end,
            executions,
        });
        let mut begin = 0;
        let loads = self.loads.into_iter().map(|(end, load)| {
            let n_instructions = end - begin;
            begin = end;
            Load {
                instructions: instructions.by_ref().take(n_instructions).collect(),
                ..load
            }
        });
        let loads = loads.collect();
        Ok(Program { text, loads })
    }
}
