//! What the kernel allows: said in words of the command line, before or instead of its refusal.

use std::fs;

use anyhow::bail;

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

/// The error; for a user without rights the command that has them.
pub(super) fn in_place_of_a_refusal(error: anyhow::Error) -> anyhow::Error {
    let refused = ["Permission denied", "Operation not permitted"];
    let said = format!("{error:#}");
    if has_rights() || !refused.iter().any(|refused| said.contains(refused)) {
        return error;
    }
    let words = std::env::args().skip(1).map(|word| quoted(&word));
    let command: Vec<String> = ["sudo".to_owned(), "hbbp-sys".to_owned()]
        .into_iter()
        .chain(words)
        .collect();
    error.context(format!("needs root: {}", harmless(&command.join(" "))))
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
fn quoted(word: &str) -> String {
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
