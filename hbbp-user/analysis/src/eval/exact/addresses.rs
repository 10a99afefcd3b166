//! Lines `ADDRESS EXECUTIONS`, the address in hexadecimal (with or without `0x`), the executions in decimal.
//!
//! The address is that of the instruction in the file, as `objdump -d` prints it. A line `M PATH [BUILD_ID]` begins the lines of a
//! module; those before the first one belong to the module that executed most in the profile. Lines that begin with `#` are
//! comments. An address may occur several times: its executions are added.

use super::counts::{AddressCounts, NoCounts};

pub(super) fn parse(text: &str) -> Result<AddressCounts, NoCounts> {
    let mut counts = AddressCounts::default();
    let mut module = "";
    let mut any = false;
    for (line, number) in text.lines().zip(1..) {
        if let Some(named) = line.strip_prefix("M ") {
            module = without_build_id(named);
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            // What does not even begin with a count is another format.
            let wrong = if any {
                NoCounts::Line(number)
            } else {
                NoCounts::Unknown
            };
            let (address, executions) = count(line).ok_or(wrong)?;
            counts.add(module, address, executions);
            any = true;
        }
    }
    Ok(counts)
}

/// Paths may have blanks; a build id is hexadecimal, `-` where it is unknown.
fn without_build_id(named: &str) -> &str {
    match named.rsplit_once(' ') {
        Some((path, id))
            if id == "-" || !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            path
        }
        _ => named,
    }
}

fn count(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (address, executions) = (words.next()?, words.next()?);
    let address = address.strip_prefix("0x").unwrap_or(address);
    words.next().is_none().then_some(())?;
    Some((u64::from_str_radix(address, 16).ok()?, executions.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn lines_belong_to_the_module_before_them() {
        let text = "# made by hand\n10 1\nM /usr/bin/a b 8e55\n1000 5\n0x1004 6\n1000 2\n\nM [vdso] -\n7 1\n";
        let counts = parse(text).unwrap();
        let module = |name: &str, counts: &[(u64, u64)]| (name.to_owned(), counts.iter().copied().collect());
        let expected: BTreeMap<String, BTreeMap<u64, u64>> = [
            module("", &[(0x10, 1)]),
            module("/usr/bin/a b", &[(0x1000, 7), (0x1004, 6)]),
            module("[vdso]", &[(7, 1)]),
        ]
        .into();
        assert_eq!(counts.modules, expected);
        assert!(!counts.is_complete && !counts.iterates);
    }

    #[test]
    fn other_lines_are_named() {
        assert_eq!(parse("1000 5\n1004 -1\n"), Err(NoCounts::Line(2)));
        assert_eq!(parse("1000 5 6\n"), Err(NoCounts::Unknown));
    }
}
