//! What the harness and PID 1 of the guest agree on: file names, the verdict line, the checkpoint, the files in both
//! directions.
//!
//! Files go to the guest and come back through the shared memory, from [`crate::layout::FILES`] on: a length in bytes
//! (u64), then for each file the lengths of its name and of itself (u32, u64), its name and its bytes. The guest has read
//! the host's before it leaves its own. A name that ends with a slash is a directory's.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The command, its words separated by zero bytes.
pub const COMMAND: &str = "/etc/vm/command";
/// Four bytes that chance begins with: PID 1 adds them to the kernel's pool of entropy.
pub const SEED: &str = "/etc/vm/seed";
/// The port of QEMU's pvpanic device, whose write stops the machine (docs/specs/pvpanic.txt of QEMU): PID 1 writes there
/// once the kernel has booted and before it reads the files of the run.
pub const CHECKPOINT_PORT: u16 = 0x505;
/// What it writes: the bit of a guest that failed, the one event that stops a machine.
pub const CHECKPOINT: u8 = 1;
/// When the reference counts: `command`, `events` or `never` ([`crate::machine::Marks`]).
pub const MARKS: &str = "/etc/vm/marks";
/// Parameters for the driver module; no driver is loaded when the file is missing.
pub const DRIVER_PARAMETERS: &str = "/etc/vm/driver";
/// Samples a second that the kernel lets through, when the hardware profile limits them.
pub const SAMPLE_RATE: &str = "/etc/vm/sample_rate";
/// The driver module.
pub const DRIVER: &str = "/lib/vm/hbbp_emu.ko";
/// Other modules are loaded from here in the order of their names.
pub const MODULES: &str = "/lib/vm/modules";
/// Every file here comes back to the host.
pub const OUT: &str = "/out";
/// What the command printed.
pub const STDOUT: &str = "stdout";
/// What the command complained.
pub const STDERR: &str = "stderr";
/// PID 1 ends its last line with this and the exit code of the command.
pub const VERDICT: &str = "hbbp-vm: exit code ";

/// Bytes of the number that [`pack`] begins with: the length of the rest.
pub const LENGTH: usize = 8;

/// The bytes to leave in the shared memory.
pub fn pack(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, bytes) in files {
        body.extend_from_slice(&(name.len() as u32).to_le_bytes());
        body.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(bytes);
    }
    let mut all = (body.len() as u64).to_le_bytes().to_vec();
    all.extend_from_slice(&body);
    all
}

/// The files that [`pack`] packed.
///
/// # Errors
/// When the memory is inconsistent.
pub fn unpack(memory: &[u8]) -> Result<BTreeMap<String, &[u8]>> {
    let mut rest = memory;
    let length = number(&mut rest, LENGTH)? as usize;
    rest = rest
        .get(..length)
        .context("the files are longer than the memory")?;
    let mut files = BTreeMap::new();
    while !rest.is_empty() {
        let name_length = number(&mut rest, 4)? as usize;
        let length = number(&mut rest, 8)? as usize;
        let name = String::from_utf8_lossy(take(&mut rest, name_length)?).into_owned();
        files.insert(name, take(&mut rest, length)?);
    }
    Ok(files)
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n).context("the files end too early")?;
    *rest = tail;
    Ok(head)
}

fn number(rest: &mut &[u8], n: usize) -> Result<u64> {
    Ok(take(rest, n)?
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_files_round_trip() {
        let files = BTreeMap::from([("a".to_owned(), vec![1, 2, 3]), ("empty".to_owned(), vec![])]);
        let mut memory = pack(&files);
        memory.extend_from_slice(&[0; 100]);
        let unpacked = unpack(&memory).unwrap();
        let unpacked = unpacked.into_iter().map(|(name, bytes)| (name, bytes.to_vec()));
        assert_eq!(unpacked.collect::<BTreeMap<_, _>>(), files);
        assert_eq!(unpack(&[0; 8]).unwrap(), BTreeMap::new());
    }
}
