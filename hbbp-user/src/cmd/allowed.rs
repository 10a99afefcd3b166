//! What the kernel allows: said in words of the command line, before or instead of its refusal.

use std::error::Error;
use std::fs;
use std::io;

use anyhow::bail;
use rustix::io::Errno;
use rustix::process::geteuid;

use hbbp_collect::choice::Choice;
use hbbp_collect::limits::effective_capabilities;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::run::Period;

/// Where the kernel says how many samples a second it takes on a CPU.
const SAMPLE_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Numbers of CAP_SYS_ADMIN, CAP_PERFMON and CAP_BPF (`include/uapi/linux/capability.h`).
const ADMIN: u32 = 21;
const NEEDED: [u32; 2] = [38, 39];

/// Refuses a frequency that the kernel would refuse without saying why.
pub(super) fn check_frequency(choice: &Choice) -> anyhow::Result<()> {
    let Some(Period::Frequency(asked)) = choice.period else {
        return Ok(());
    };
    // Where the limit cannot be read, the kernel has the last word.
    let limit = fs::read_to_string(SAMPLE_RATE)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if let Some(limit) = limit.filter(|limit| *limit < asked) {
        let limit: u64 = limit;
        bail!(
            "--frequency {asked} is more than the kernel takes, {limit} a second on each CPU: choose less, or raise \
             kernel.perf_event_max_sample_rate"
        );
    }
    Ok(())
}

/// What is said to root where sudo gives no more rights.
const IN_A_CONTAINER: &str = "root has neither CAP_PERFMON and CAP_BPF nor CAP_SYS_ADMIN here, as in a container: run hbbp-sys on the \
                              host, or give the container what `hbbp-sys check` names";

/// The error; for a user without rights the command that has them, and for root without them what to do.
pub(super) fn in_place_of_a_refusal(error: anyhow::Error) -> anyhow::Error {
    if has_rights() || !error.chain().any(is_refusal) {
        return error;
    }
    if geteuid().is_root() {
        return error.context(IN_A_CONTAINER);
    }
    let words = std::env::args().skip(1).map(|word| quoted(&word));
    let command: Vec<String> = ["sudo".to_owned(), "hbbp-sys".to_owned()]
        .into_iter()
        .chain(words)
        .collect();
    error.context(format!("needs root: {}", harmless(&command.join(" "))))
}

/// Whether the kernel refused a right (EACCES, EPERM), by the error of the system call.
fn is_refusal(cause: &(dyn Error + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return error.kind() == io::ErrorKind::PermissionDenied;
    }
    let errno = cause.downcast_ref::<Errno>();
    errno.is_some_and(|errno| [Errno::ACCESS, Errno::PERM].contains(errno))
}

/// Whether this process may open perf events and load BPF programs.
fn has_rights() -> bool {
    let Some(granted) = effective_capabilities() else {
        return false;
    };
    let has = |number: u32| granted >> number & 1 == 1;
    has(ADMIN) || NEEDED.into_iter().all(has)
}

/// A word as a shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_refusal_is_known_by_its_kind_and_not_by_its_words() {
        let is_refused = |error: &anyhow::Error| error.chain().any(is_refusal);
        for errno in [libc::EACCES, libc::EPERM] {
            let failed: io::Result<()> = Err(io::Error::from_raw_os_error(errno));
            let failed = failed.context("no event can be sampled").unwrap_err();
            assert!(is_refused(&failed), "{failed:#}");
        }
        let failed: Result<(), Errno> = Err(Errno::PERM);
        assert!(is_refused(&failed.context("no map").unwrap_err()));
        assert!(!is_refused(&anyhow::anyhow!(
            "no such file: /srv/Permission denied"
        )));
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        assert!(!is_refused(&busy.into()));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, shown) in [
            ("-d", "-d"),
            ("/bin/ls", "/bin/ls"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
