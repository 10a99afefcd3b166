//! Files by build id from the servers that `DEBUGINFOD_URLS` names, by elfutils' client (debuginfod-find(1)). A program which runs as
//! root should have neither HTTP nor TLS. The client's cache forgets what was not used for a week.
//!
//! Only finished profiles and recordings ask for files: a measurement waits for no server.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use hbbp_model::snapshot::hex;

/// The program of elfutils.
const CLIENT: &str = "debuginfod-find";

/// The limits that the client keeps, where the user sets none (debuginfod-client-config(7)): seconds for a file, and its bytes. The
/// debug information of a kernel has half a gigabyte.
const LIMITS: [(&str, &str); 2] = [
    ("DEBUGINFOD_MAXTIME", "120"),
    ("DEBUGINFOD_MAXSIZE", "2147483648"),
];

/// What a server has of a build id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Artifact {
    /// The file that was executed.
    Executable,
    /// Its debug information.
    DebugInfo,
}

impl Artifact {
    const fn name(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::DebugInfo => "debuginfo",
        }
    }
}

/// Why no server is asked any more: one could not be reached, which would take its time for each file.
static GIVEN_UP: OnceLock<String> = OnceLock::new();

/// Why files are asked for at no server any more, for the user; `None` while they are.
pub fn given_up() -> Option<&'static str> {
    GIVEN_UP.get().map(String::as_str)
}

/// The file of a build id in the client's cache; `None` where no server has it or none may be asked.
///
/// Nothing is asked for where `DEBUGINFOD_URLS` is not set, and under sudo(8), whose environment may be that of another user.
pub(crate) fn fetch(artifact: Artifact, build_id: &[u8]) -> Option<PathBuf> {
    let is_wanted = env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty());
    if build_id.is_empty() || !is_wanted || env::var_os("SUDO_UID").is_some() || GIVEN_UP.get().is_some() {
        return None;
    }
    let limits = LIMITS.into_iter().filter(|(name, _)| env::var_os(name).is_none());
    let output = Command::new(CLIENT)
        .args([artifact.name(), &hex(build_id)])
        .envs(limits)
        .stdin(Stdio::null())
        .output();
    match file_of(output) {
        Ok(file) => file,
        Err(why) => {
            GIVEN_UP.get_or_init(|| why);
            None
        }
    }
}

/// The file that the client names, `None` where no server has it, and else why none is to be asked any more.
fn file_of(output: io::Result<Output>) -> Result<Option<PathBuf>, String> {
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!(
                "{CLIENT} is not installed (package debuginfod or elfutils-debuginfod-client)"
            ));
        }
        output => output.map_err(|error| format!("{CLIENT} cannot be run: {error}"))?,
    };
    let first_line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.lines().next().unwrap_or_default().to_owned()
    };
    if output.status.success() {
        let file = PathBuf::from(first_line(&output.stdout));
        return Ok(file.is_absolute().then_some(file));
    }
    // It prints the text of errno (debuginfod-find.c).
    let why = first_line(&output.stderr);
    let is_absent = why.ends_with("No such file or directory") || why.ends_with("File too large");
    if is_absent { Ok(None) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::Path;
    use std::process::ExitStatus;

    use super::*;

    fn answer(code: i32, stdout: &str, stderr: &str) -> Result<Option<PathBuf>, String> {
        file_of(Ok(Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: stdout.into(),
            stderr: stderr.into(),
        }))
    }

    #[test]
    fn answers_of_the_client() {
        let file = Path::new("/cache/ab12/debuginfo");
        assert_eq!(
            answer(0, "/cache/ab12/debuginfo\n", "").unwrap().as_deref(),
            Some(file)
        );
        assert_eq!(answer(0, "", ""), Ok(None));
        let absent = "Server query failed: No such file or directory\n";
        assert_eq!(answer(1, "", absent), Ok(None));
        let refused = "Server query failed: Connection refused";
        assert_eq!(answer(1, "", refused), Err(refused.to_owned()));
        let missing = file_of(Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert!(missing.contains("package debuginfod"), "{missing}");
    }
}
