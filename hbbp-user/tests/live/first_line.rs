//! Where no executions can be had, every output begins with the reason, which is that of `check`.

use serde_json::Value;

use super::{kernel, run};

/// Words without line breaks.
fn in_one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_output_begins_with_the_reason_of_check() {
    let Some(_kernel) = kernel() else { return };
    let check = run(&["check", "--format", "json"]);
    let found: Value = serde_json::from_slice(&check.stdout).unwrap();
    let why = found["without_executions"].as_str().unwrap();
    for command in [
        &["--duration", "1"][..],
        &["--duration", "1", "--details"],
        &["--duration", "1", "--by", "mnemonic"],
        &["top", "--batch", "-n", "1"],
        &["processwatch", "-i", "1", "-n", "1"],
    ] {
        let output = run(command);
        assert!(output.status.success(), "{output:?}");
        let said = in_one_line(&output.stdout);
        if why.is_empty() {
            assert!(!said.contains("not executions"), "{command:?}: {said}");
        } else {
            let first = format!("{why}: samples of ");
            assert!(said.starts_with(&first), "{command:?}: {first}: {said}");
        }
    }
    if !why.is_empty() {
        let said = in_one_line(&run(&["check"]).stdout);
        let first = format!("No executions can be sampled, only time: {why} ");
        assert!(said.starts_with(&first), "{first}: {said}");
        // An event that was asked for is not the fault of the machine.
        let said = in_one_line(&run(&["--duration", "1", "--event", "cpu-clock"]).stdout);
        assert!(said.starts_with("figures are samples of cpu-clock: "), "{said}");
    }
}
