//! Subcommands that are written wrongly. The parser takes such a word for an argument of the measurement, which has none.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Words that are less alike are no mistake for one another.
const ALIKE: f64 = 0.8;

/// The error, with the subcommand that was meant where there is one of nearly that name.
pub(super) fn with_similar_subcommand(mut error: Error, command: &Command) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let names = command.get_subcommands().map(Command::get_name);
    let alike = names.map(|name| (strsim::jaro(word, name), name));
    let meant = alike
        .filter(|(alike, _)| ALIKE <= *alike)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, name)) = meant {
        if name == word.as_str() {
            let tip = format!("a subcommand goes before its options: hbbp-sys {name} ..");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            return error;
        }
        let meant = ContextValue::Strings(vec![name.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    error
}
