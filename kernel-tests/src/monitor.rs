//! QEMU's monitor: commands in JSON over a socket (QEMU, docs/interop/qmp-spec.txt).

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Longest time that QEMU may take to answer: a guest that is saved takes less than a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// A conversation with a running QEMU.
pub(crate) struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Has QEMU listen on a socket.
    pub(crate) fn offer(qemu: &mut Command, socket: &Path) {
        let place = format!("unix:{},server=on,wait=off", socket.display());
        qemu.args(["-monitor", "none", "-qmp", &place]);
    }

    /// Connects to a QEMU that has just been started, as long as `runs` says that it runs.
    ///
    /// # Errors
    /// When it does not listen.
    pub(crate) fn connect(socket: &Path, mut runs: impl FnMut() -> bool) -> Result<Self> {
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if runs() => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error).context("QEMU ended before it could be asked anything"),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        monitor.ask("qmp_capabilities", &json!({}))?;
        // Memory that is a file is left where it is.
        let is_shared = json!({ "capability": "x-ignore-shared", "state": true });
        monitor.ask(
            "migrate-set-capabilities",
            &json!({ "capabilities": [is_shared] }),
        )?;
        Ok(monitor)
    }

    /// Waits until the guest stops.
    ///
    /// # Errors
    /// When QEMU ends before, or the guest does not stop in time.
    pub(crate) fn wait_for_stop(&mut self) -> Result<()> {
        while self.message()?["event"] != "STOP" {}
        Ok(())
    }

    /// Saves what a stopped guest has in addition to its memory.
    ///
    /// # Errors
    /// When QEMU cannot.
    pub(crate) fn save(&mut self, to: &Path) -> Result<()> {
        let uri = format!("exec:cat > '{}'", to.display());
        self.ask("migrate", &json!({ "uri": uri }))?;
        self.wait_for_migration()
    }

    /// Loads what [`Self::save`] saved into a QEMU that waits for it, and lets the guest go on.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub(crate) fn load(&mut self, from: &Path) -> Result<()> {
        let uri = format!("exec:cat '{}'", from.display());
        self.ask("migrate-incoming", &json!({ "uri": uri }))?;
        self.wait_for_migration()?;
        self.go_on()
    }

    /// Lets a stopped guest go on.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.ask("cont", &json!({})).map(drop)
    }

    fn wait_for_migration(&mut self) -> Result<()> {
        loop {
            let progress = self.ask("query-migrate", &json!({}))?;
            match progress["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => bail!("QEMU failed to save or to load a guest: {progress}"),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Has QEMU run the command, and returns its answer.
    fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}").context("failed to write to QEMU's monitor")?;
        loop {
            let message = self.message()?;
            if let Some(error) = message.get("error") {
                bail!("QEMU refused {command}: {error}");
            }
            if let Some(answer) = message.get("return") {
                return Ok(answer.clone());
            }
        }
    }

    fn message(&mut self) -> Result<Value> {
        let mut line = String::new();
        let n_bytes = self.stream.read_line(&mut line);
        if n_bytes.context("QEMU's monitor gave no answer")? == 0 {
            bail!("QEMU ended");
        }
        serde_json::from_str(&line).context("failed to understand QEMU's monitor")
    }
}
