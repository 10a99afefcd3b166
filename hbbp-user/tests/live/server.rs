//! A server of debuginfod's protocol (debuginfod(8), "WEBAPI"), for files of build ids.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// What it has: the path of each request, and the answer.
#[derive(Default)]
pub(crate) struct Server(Vec<(String, Vec<u8>)>);

impl Server {
    /// With a file as this artifact of the build id of a program.
    pub(crate) fn with(mut self, program: &str, artifact: &str, file: &Path) -> Self {
        let notes = Command::new("readelf").args(["-n", program]).output().unwrap();
        let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
        let build_id = notes
            .split("Build ID: ")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next();
        let request = format!("GET /buildid/{}/{artifact} ", build_id.unwrap());
        self.0.push((request, std::fs::read(file).unwrap()));
        self
    }

    /// Answers until the test program ends; returns its address for `DEBUGINFOD_URLS`.
    pub(crate) fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                self.answer(stream);
            }
        });
        format!("http://{address}")
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut request = [0; 4096];
        let n = stream.read(&mut request).unwrap_or(0);
        let known = self
            .0
            .iter()
            .find(|(path, _)| request[..n].starts_with(path.as_bytes()));
        let (status, body) = known.map_or(("404 Not Found", &[][..]), |(_, body)| ("200 OK", &body[..]));
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        // A client that went away needs no answer.
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body));
    }
}
