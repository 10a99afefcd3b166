//! A collector gets profiles and metrics whose sums are those of the segments; one that hangs, refuses or talks nonsense harms
//! nothing.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use hbbp_model::snapshot::Snapshot;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use prost::Message as _;
use serde_json::Value;

use super::metrics::{get, got};
use super::{Daemon, names, path_of};
use crate::load::Load;
use crate::{kernel, report_by};

/// What a collector was sent, by path.
type Received = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector that answers every request with these bytes, and closes the connection.
fn collector(answer: &'static [u8]) -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let received = Received::default();
    let all = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if let Some(request) = request(&stream) {
                all.lock().unwrap().push(request);
            }
            let _ = (&stream).write_all(answer);
        }
    });
    (url, received)
}

/// The path and the decompressed body of a request.
fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut len = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            len = value.trim().parse().ok()?;
        }
    }
    let mut body = Vec::new();
    GzDecoder::new(reader.take(len)).read_to_end(&mut body).ok()?;
    Some((path, body))
}

const ACCEPTED: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

/// An index of a table.
fn at(index: i32) -> usize {
    usize::try_from(index).unwrap()
}

/// The sums of a profile by ring and mnemonic, and when it began in ns since 1970.
fn sums(body: &[u8]) -> (u64, BTreeMap<[String; 2], f64>) {
    let request = ExportProfilesServiceRequest::decode(body).unwrap();
    let dictionary = request.dictionary.unwrap();
    let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
    let mut sums: BTreeMap<[String; 2], f64> = BTreeMap::new();
    let unit = at(profile.sample_type.unwrap().unit_strindex);
    let is_whole = dictionary.string_table[unit] == "count";
    let of_one = if is_whole { 1.0 } else { 1000.0 };
    for sample in &profile.samples {
        let attribute = |key: &str| {
            let all = sample.attribute_indices.iter();
            let mut all = all.map(|idx| &dictionary.attribute_table[at(*idx)]);
            let found = all.find(|it| dictionary.string_table[at(it.key_strindex)] == key);
            match found.unwrap().value.clone().unwrap().value.unwrap() {
                Attribute::StringValue(text) => text,
                other => format!("{other:?}"),
            }
        };
        let stack = &dictionary.stack_table[at(sample.stack_index)];
        let location = &dictionary.location_table[at(stack.location_indices[0])];
        let function = &dictionary.function_table[at(location.lines[0].function_index)];
        let name = &dictionary.string_table[at(function.name_strindex)];
        assert!(!name.is_empty());
        let mapping = &dictionary.mapping_table[at(location.mapping_index)];
        let file = &dictionary.string_table[at(mapping.filename_strindex)];
        // What has no row of its own on a busy machine is in no file.
        assert_eq!(file.is_empty(), name == "[other]", "{name} in `{file}`");
        *sums
            .entry(["cpu.mode", "hbbp.mnemonic"].map(attribute))
            .or_default() += sample.values[0] as f64 / of_one;
    }
    (profile.time_unix_nano, sums)
}

/// Every profile is one of a segment, and has its sums.
fn assert_profiles_are_segments(daemon_folder: &std::path::Path, bodies: &[Vec<u8>]) {
    let segments = names(daemon_folder).into_iter().map(|name| {
        let path = path_of(daemon_folder, &name);
        let snapshot: Snapshot = hbbp_model::profile::read_runs(std::path::Path::new(&path))
            .unwrap()
            .remove(0);
        (snapshot.run.started, path)
    });
    let segments: BTreeMap<u64, String> = segments.collect();
    for body in bodies {
        let (started, sums) = sums(body);
        let report: Value = report_by(&segments[&started], "mnemonic,ring");
        let rows = report["mix"]["rows"].as_array().unwrap();
        let total: f64 = rows
            .iter()
            .map(|row| row["total"]["amount"].as_f64().unwrap())
            .sum();
        let sent: f64 = sums.values().sum();
        assert!((sent - total).abs() <= 1.0, "{sent}, {total}");
        for row in rows {
            let key = |n: usize| row["key"][n].as_str().unwrap().to_owned();
            let amount = row["total"]["amount"].as_f64().unwrap();
            let sent = sums.get(&[key(1), key(0)]).copied().unwrap_or(0.0);
            // The report rounds samples to whole ones.
            assert!((sent - amount).abs() <= 1.5 + 0.01 * amount, "{row}: {sent}");
        }
    }
}

#[test]
fn collector_gets_the_sums_of_the_segments() {
    let Some(_kernel) = kernel() else { return };
    let _load = [Load::syscalls(), Load::spin()];
    let (url, received) = collector(ACCEPTED);
    let made = tempfile::tempdir().unwrap();
    let folder = made.path().join("segments");
    let daemon = Daemon::with(&folder, &["--otlp", &url]);
    daemon.until_intervals(3);
    let said = daemon.stop();
    assert!(!said.contains("collector lost"), "{said}");
    let received = received.lock().unwrap();
    let of = |path: &str| -> Vec<Vec<u8>> {
        let some = received.iter().filter(|(it, _)| it == path);
        some.map(|(_, body)| body.clone()).collect()
    };
    let (profiles, metrics) = (of("/v1development/profiles"), of("/v1/metrics"));
    assert_eq!(profiles.len(), names(&folder).len());
    assert_eq!(
        (metrics.len(), received.len()),
        (profiles.len(), 2 * profiles.len())
    );
    assert_profiles_are_segments(&folder, &profiles);

    let last = ExportMetricsServiceRequest::decode(metrics.last().unwrap().as_slice()).unwrap();
    let metrics = &last.resource_metrics[0].scope_metrics[0].metrics;
    let sum = |name: &str| -> f64 {
        let metric = metrics.iter().find(|it| it.name == name).unwrap();
        let Some(Data::Sum(sum)) = &metric.data else {
            return f64::NAN;
        };
        let values = sum.data_points.iter().map(|point| match point.value {
            Some(Number::AsDouble(value)) => value,
            _ => f64::NAN,
        });
        values.sum()
    };
    let all: f64 = profiles
        .iter()
        .map(|body| sums(body).1.values().sum::<f64>())
        .sum();
    assert!((sum("hbbp_mix") - all).abs() <= profiles.len() as f64);
    assert!((sum("hbbp_mix") - sum("hbbp_cgroup_mix")).abs() < 1e-6 * sum("hbbp_mix"));
}

/// A daemon that sends to this collector measures on, and counts what it counts.
fn assert_harmless(url: &str, counters: &[&str]) {
    let made = tempfile::tempdir().unwrap();
    let (folder, socket) = (made.path().join("segments"), made.path().join("socket"));
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::with(&folder, &["--otlp", url, "--listen", &listen]);
    daemon.until_intervals(3);
    daemon.until(&format!("{counters:?} of {url}"), |_| {
        let text = get(&socket, "/metrics", "");
        let is_counted = |id: &&str| {
            let name = format!("hbbp_daemon_{id}_total ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.is_some_and(|n| n != "0")
        };
        counters.iter().all(is_counted)
    });
    // On a busy machine an interval may be late.
    daemon.until("health", |_| got(&socket, "/healthz", "").1 == b"ok\n");
    // The end waits for the collector no longer than some seconds.
    let said = daemon.stop();
    println!(
        "{url}: {}",
        said.lines()
            .filter(|it| it.contains("collector"))
            .collect::<Vec<_>>()
            .join("; ")
    );
    assert!(3 <= names(&folder).len());
}

#[test]
fn bad_collectors_harm_nothing() {
    let Some(_kernel) = kernel() else { return };
    let _load = Load::syscalls();
    // Nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_harmless(&format!("http://{free}"), &["otlp_retries"]);
    // It takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_harmless(
        &format!("http://{}", silent.local_addr().unwrap()),
        &["otlp_retries"],
    );
    drop(silent);
    for (answer, counter) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
            "otlp_refused",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
            "otlp_refused",
        ),
        (
            b"HTTP/1.1 503 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
            "otlp_retries",
        ),
        (b"\x16\x03\x01 no HTTP at all\r\n\r\n", "otlp_retries"),
    ] {
        assert_harmless(&collector(answer).0, &[counter]);
    }
}

#[test]
fn answers_without_end_are_cut_off() {
    let Some(_kernel) = kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = request(&stream);
            let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n");
            let _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
            while (&stream).write_all(&[0; 4096]).is_ok() {}
        }
    });
    assert_harmless(&url, &["otlp_retries"]);
}
